"""The live tail: what the group consumer delivers, folded in batches.

While one batch is being folded the next one collects: a lone event is folded at once
and a flood is folded hundreds at a time, with no timer in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cachemind.agents.folding import Folder
from cachemind.agents.own_thread import OwnThread
from cachemind.agents.replay import fill
from cachemind.errors import FoldStopped, LogUnavailable
from cachemind.ports import LogReader, LogRecord
from cachemind.types import Lsn, Offset, Partition

log = logging.getLogger(__name__)

BATCH_RECORDS: Final = 1000
BATCH_BYTES: Final = 8 * 1024 * 1024
INBOX_RECORDS: Final = 2000
RETRY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Delivery:
    """A record, and what to call once its effects are committed."""

    record: LogRecord
    ack: Callable[[], object]


def fold_live(
    folder: Folder,
    reader: LogReader,
    records: Sequence[LogRecord],
    should_stop: Callable[[], bool],
) -> None:
    """Fold delivered `records` of one partition, and all that they skip over.

    A consumer jumps over control records, and after a rebalance over whatever it
    pleases: unless the records follow on from the fold's position without a gap,
    the whole span is read from the log itself.
    Raises: as `replay.fill`.
    """
    fresh = [r for r in records if r.lsn.offset >= folder.position]
    if not fresh:
        return
    expected = range(folder.position, folder.position + len(fresh))
    if all(r.lsn.offset == at for r, at in zip(fresh, expected, strict=True)):
        folder.fold(fresh)
        return
    end = Offset(max(r.lsn.offset for r in fresh) + 1)
    fill(folder, reader, end, should_stop=should_stop)


class LiveFold:
    """Takes deliveries from the agent and folds them on the fold's own thread."""

    def __init__(
        self,
        folders: Mapping[Partition, Folder],
        reader: LogReader,
        fold_thread: OwnThread,
        should_stop: Callable[[], bool],
    ) -> None:
        self._folders = folders
        self._reader = reader
        self._fold_thread = fold_thread
        self._should_stop = should_stop
        self._inbox: asyncio.Queue[Delivery] = asyncio.Queue(INBOX_RECORDS)

    async def accept(self, record: LogRecord, ack: Callable[[], object]) -> None:
        """Queue one delivery; waits while the fold is far behind."""
        await self._inbox.put(Delivery(record, ack))

    async def run(self) -> None:
        """Fold until cancelled; a partition that stops is halted.

        Raises: `FoldStopped` for a partition that has no store; `StoreError`.
        """
        while True:
            batch = await self._next_batch()
            await self._fold(_by_partition(batch))
            for delivery in batch:
                delivery.ack()

    async def _next_batch(self) -> Sequence[Delivery]:
        batch = [await self._inbox.get()]
        size = _bytes(batch[0])
        while len(batch) < BATCH_RECORDS and size < BATCH_BYTES:
            if self._inbox.empty():
                break
            batch.append(self._inbox.get_nowait())
            size += _bytes(batch[-1])
        return batch

    async def _fold(self, batch: Mapping[Partition, Sequence[LogRecord]]) -> None:
        while True:
            try:
                return await self._fold_thread.run(self._fold_all, batch)
            except LogUnavailable as error:
                log.warning("the fold waits for the log: %s", error)
                await asyncio.sleep(RETRY_S)

    def _fold_all(self, batch: Mapping[Partition, Sequence[LogRecord]]) -> None:
        for records in batch.values():
            folder = self._folder(records[0].lsn)
            if folder.halted is not None:
                continue
            try:
                fold_live(folder, self._reader, records, self._should_stop)
            except FoldStopped as error:
                folder.halt(error)

    def _folder(self, lsn: Lsn) -> Folder:
        folder = self._folders.get(lsn.partition)
        if folder is None:
            raise FoldStopped(
                str(lsn), "the topic has grown a partition that has no store"
            )
        return folder


def _bytes(delivery: Delivery) -> int:
    return len(delivery.record.value or b"")


def _by_partition(batch: Sequence[Delivery]) -> Mapping[Partition, list[LogRecord]]:
    grouped: dict[Partition, list[LogRecord]] = {}
    for delivery in batch:
        record = delivery.record
        grouped.setdefault(record.lsn.partition, []).append(record)
    return grouped
