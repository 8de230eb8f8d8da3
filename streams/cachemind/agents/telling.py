"""Tells the other hosts that this one lives, and which checkpoints it keeps.

What is told is brought in line with what is kept, whatever was missed: a process that
dies between removing a checkpoint and saying so leaves that to the next one. On a
thread of its own, so that the fold never waits for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final, Protocol

from cachemind.core.hosts import HostCheckpoint, HostRecord, telling
from cachemind.errors import CacheError, CheckpointRefused
from cachemind.ports import Clock
from cachemind.types import Lsn, Offset, Partition

log = logging.getLogger(__name__)

BEAT_S: Final = 60.0
"""How often a host says that it lives; also how late a missed change is told."""

RETRY_S: Final = 5.0
FORGET_S: Final = 30 * 24 * 3_600
NS_PER_S: Final = 1_000_000_000
LEAST_PAUSE_S: Final = 1.0
"""Between two looks: what was thinned out meanwhile need not be told at all."""


class KeptCheckpoints(Protocol):
    """The checkpoints of one partition on this host, as far as they are told."""

    def offsets(self) -> Sequence[Offset]:
        """Return where there is one. Raises: `StoreUnavailable`."""
        ...

    def told(self, offset: Offset) -> HostCheckpoint:
        """Return what to tell of one. Raises: `CheckpointRefused`."""
        ...


class HostBoard(Protocol):
    """Where hosts say what they say. Raises: `LogUnavailable`, `LogRejected`."""

    def records(self) -> Sequence[HostRecord]:
        """Return what is said now."""
        ...

    def change(
        self, publish: Iterable[HostRecord], retract: Iterable[HostRecord] = ()
    ) -> None:
        """Return once all of it is durable."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TellingDeps:
    """What is told, and where. `me` is the host, of which time does not matter."""

    me: HostRecord
    kept: Mapping[Partition, KeptCheckpoints]
    board: AbstractContextManager[HostBoard]
    clock: Clock
    beat_s: float = BEAT_S


class Telling:
    """Runs between `start` and `stop`; `changed` makes it look at once."""

    def __init__(self, deps: TellingDeps) -> None:
        self._deps = deps
        self._changed = threading.Event()
        self._stopping = threading.Event()
        self._told: set[Lsn] | None = None
        self._thread = threading.Thread(target=self._run, name="telling", daemon=True)

    def start(self) -> None:
        """Begin to tell."""
        self._thread.start()

    def changed(self) -> None:
        """Note that checkpoints were made or removed. Never waits."""
        self._changed.set()

    def stop(self, timeout_s: float) -> None:
        """End, waiting for what is on its way at most `timeout_s`."""
        self._stopping.set()
        self._changed.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        with self._deps.board as board:
            while not self._stopping.is_set():
                wait_s = self._deps.beat_s
                self._changed.clear()
                try:
                    tell(self._deps, board, self._known(board))
                except CacheError as error:
                    log.warning("what is kept here was not told: %s", error)
                    # What has arrived is not known: look again at what is said.
                    self._told, wait_s = None, RETRY_S
                if not self._stopping.wait(LEAST_PAUSE_S):
                    self._changed.wait(wait_s)

    def _known(self, board: HostBoard) -> set[Lsn]:
        if self._told is None:
            records = board.records()
            board.change((), forgotten(records, self._deps.clock.now_ns()))
            self._told = told_by(self._deps.me, records)
        return self._told


def told_by(me: HostRecord, records: Iterable[HostRecord]) -> set[Lsn]:
    """Return the checkpoints that `me` has told of."""
    return {
        one.checkpoint.lsn
        for one in records
        if one.host_id == me.host_id and one.checkpoint is not None
    }


def forgotten(records: Sequence[HostRecord], now_ns: int) -> Sequence[HostRecord]:
    """Return the records of hosts that have been silent for `FORGET_S`.

    One that comes back after that tells all of it anew.
    """
    heard: dict[str, int] = {}
    for one in records:
        heard[one.host_id] = max(heard.get(one.host_id, 0), one.noted_at_ns)
    limit_ns = now_ns - FORGET_S * NS_PER_S
    return [one for one in records if heard[one.host_id] < limit_ns]


def tell(deps: TellingDeps, board: HostBoard, told: set[Lsn]) -> None:
    """Say that the host lives, and bring `told` in line with what it keeps.

    Raises: `LogUnavailable`, `LogRejected`, `StoreUnavailable`; then `told` is not
    known to hold any more.
    """
    me = replace(deps.me, noted_at_ns=deps.clock.now_ns())
    kept = {partition: one.offsets() for partition, one in deps.kept.items()}
    todo = telling(kept, told)
    news = [record for lsn in todo.publish for record in _news(deps, me, lsn)]
    gone = [me.about(_gone(lsn)) for lsn in todo.retract]
    board.change([me, *news], gone)
    told.difference_update(todo.retract)
    told.update(one.checkpoint.lsn for one in news if one.checkpoint is not None)


def _news(deps: TellingDeps, me: HostRecord, lsn: Lsn) -> Iterable[HostRecord]:
    try:
        yield me.about(deps.kept[lsn.partition].told(lsn.offset))
    except CheckpointRefused as error:
        # It was removed meanwhile, or is none: nothing can be rebuilt from it.
        log.debug("not told: %s", error)


def _gone(lsn: Lsn) -> HostCheckpoint:
    return HostCheckpoint(
        partition=lsn.partition, offset=lsn.offset, created_at_ns=0, namespaces=()
    )
