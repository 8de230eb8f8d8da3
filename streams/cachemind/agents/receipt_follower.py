"""Keeps an index of receipts at the live end of the two audit topics."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from cachemind.errors import OffsetOutOfRange
from cachemind.ports import LogFollower, LogReader, LogRecord
from cachemind.ports.receipt_index import ReceiptIndex
from cachemind.types import Offset, Partition

log = logging.getLogger(__name__)

RETRY_S: Final = 0.1
CUTS: Final = Partition(0)
Seal = Callable[[Sequence[LogRecord]], None]


def seal_nothing(_: Sequence[LogRecord]) -> None:
    """Keep no copy."""


class Topic(LogFollower, LogReader, Protocol):
    """A topic that is followed, and asked where it begins."""


class ReceiptFollower:
    """Follows receipts in one thread and cuts in another.

    `seal` is given every batch of the audit topic before the index has it, some of
    them again after a restart.
    """

    def __init__(
        self,
        index: ReceiptIndex,
        receipts: Topic,
        cuts: Topic,
        stop: threading.Event,
        seal: Seal = seal_nothing,
    ) -> None:
        self._index = index
        self._receipts = receipts
        self._cuts = cuts
        self._stop = stop
        self._seal = seal
        self._failed: list[Exception] = []

    def run(self) -> None:
        """Follow until told to stop.

        Raises: what ended one of the two, after the other has ended as well.
        """
        threads = [
            threading.Thread(target=self._guarded, args=(work,), name=name)
            for name, work in (
                ("receipts", self._follow_receipts),
                ("cuts", self._follow_cuts),
            )
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failed:
            raise self._failed[0]

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - `run` raises it
            self._failed.append(error)
            self._stop.set()

    def _follow_receipts(self) -> None:
        def take(batch: Sequence[LogRecord]) -> None:
            self._seal(batch)
            while not self._index.add_receipts(batch):
                # The topic lost its beginning: the cuts know how to go on.
                if self._stop.wait(RETRY_S):
                    return

        self._follow(self._receipts, self._index.receipt_offsets(), take)

    def _follow_cuts(self) -> None:
        self._follow(self._cuts, {CUTS: self._index.cut_offset()}, self._index.add_cuts)

    def _follow(
        self,
        topic: Topic,
        starts: Mapping[Partition, Offset],
        take: Callable[[Sequence[LogRecord]], object],
    ) -> None:
        at = dict(starts)
        while not self._stop.is_set():
            try:
                for batch in topic.follow(at, self._stop.is_set):
                    if batch:
                        take(batch)
                    for record in batch:
                        at[record.lsn.partition] = Offset(record.lsn.offset + 1)
            except OffsetOutOfRange as error:
                self._skip(topic, at, error)

    def _skip(
        self, topic: Topic, at: dict[Partition, Offset], error: OffsetOutOfRange
    ) -> None:
        """Go on where the topic begins now. Raises: `error` where it ends before."""
        firsts = {number: topic.bounds(number)[0] for number in at}
        behind = [number for number, first in firsts.items() if at[number] < first]
        if not behind:
            raise error
        log.warning("%s; going on where the topic begins", error)
        for number in behind:
            at[number] = firsts[number]
