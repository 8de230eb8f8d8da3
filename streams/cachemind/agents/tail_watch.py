"""Watches the log's end beside the live fold.

Every tick asks the log where it ends, reports the lag, keeps up in bulk those
partitions that the group consumer does not hold, and notices a fold that stands.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Set
from typing import Final

from cachemind.agents.folding import Folder
from cachemind.agents.own_thread import OwnThread
from cachemind.agents.replay import catch_up
from cachemind.agents.status import MaterializerStatus, PartitionStatus, caught_up
from cachemind.agents.watchdog import Watchdog
from cachemind.errors import FoldStopped, LogUnavailable, NoProgress
from cachemind.ports import FoldMetrics, LogReader
from cachemind.types import Lsn, Offset, Partition

log = logging.getLogger(__name__)

TICK_S: Final = 1.0
HALTED_RETRY_S: Final = 10.0
"""Between two tries of a partition that is halted: what it needs may be there now."""

HAND_OVER_TICK_S: Final = 0.1
"""While the group consumer holds less than every partition."""


class TailWatch:
    """Knows how far each partition is from the log's end.

    `fold_thread` is where folders may be touched, `asking_thread` where the log is
    asked; `held` names the partitions that the group consumer delivers.
    """

    def __init__(
        self,
        folders: Mapping[Partition, Folder],
        reader: LogReader,
        metrics: FoldMetrics,
        watchdog: Watchdog,
        fold_thread: OwnThread,
        asking_thread: OwnThread,
        should_stop: Callable[[], bool],
    ) -> None:
        self._folders = folders
        self._reader = reader
        self._metrics = metrics
        self._watchdog = watchdog
        self._fold_thread = fold_thread
        self._asking_thread = asking_thread
        self._should_stop = should_stop
        self._log_answers = False
        self._ends: dict[Partition, Offset] = {}
        self._caught_up: dict[Partition, bool] = {}
        self._retry_at_s: dict[Partition, float] = {}

    def status(self) -> MaterializerStatus:
        """Return what the last tick found, with the fold's present positions."""
        return MaterializerStatus(
            log_answers=self._log_answers,
            partitions={
                partition: PartitionStatus(
                    applied=folder.applied,
                    position=folder.position,
                    end=self._ends.get(partition),
                    caught_up=self._caught_up.get(partition, False),
                )
                for partition, folder in self._folders.items()
            },
        )

    async def run(self, held: Callable[[], Set[Partition]]) -> None:
        """Tick until cancelled.

        Raises: `NoProgress` where a partition stands though the log answers, and is
        not halted; `StoreError`.
        """
        complete = False
        while True:
            holding = held()
            await self.tick(holding)
            if complete != (complete := holding >= self._folders.keys()):
                log.info(
                    "%d of %d partitions are live", len(holding), len(self._folders)
                )
            await asyncio.sleep(TICK_S if complete else HAND_OVER_TICK_S)

    async def tick(self, held: Set[Partition]) -> None:
        """Look at every partition once. Raises: as `run`."""
        try:
            for partition, folder in self._folders.items():
                _, end = await self._asking_thread.run(self._reader.bounds, partition)
                if self._due(folder) if folder.halted else partition not in held:
                    await self._fold_thread.run(self._keep_up, folder)
                await self._look(folder, end)
        except LogUnavailable as error:
            self._away(error)
        else:
            self._log_answers = True

    async def _look(self, folder: Folder, end: Offset) -> None:
        partition, position = folder.partition, folder.position
        if position < end and self._watchdog.still(partition, position):
            await self._settle(folder, position, end)
            position = folder.position
        self._ends[partition] = end
        before = self._caught_up.get(partition, False)
        halted = folder.halted is not None
        self._caught_up[partition] = not halted and caught_up(before, position, end)
        self._metrics.fold_lag(partition, max(0, end - position))
        now_s = asyncio.get_running_loop().time()
        if halted:
            self._watchdog.forget(partition)
        elif self._watchdog.observe(now_s, partition, position, end):
            raise NoProgress(str(Lsn(partition, position)), end)

    async def _settle(self, folder: Folder, start: Offset, end: Offset) -> None:
        """Step over [start, end) where it holds nothing but control records."""
        empty = await self._asking_thread.run(
            self._is_empty, folder.partition, start, end
        )
        if empty:
            await self._fold_thread.run(folder.settle, start, end)

    def _is_empty(self, partition: Partition, start: Offset, end: Offset) -> bool:
        return not any(len(b) for b in self._reader.read(partition, start, end))

    def _due(self, folder: Folder) -> bool:
        """Return whether a halted partition is to be tried again by now."""
        now_s = asyncio.get_running_loop().time()
        due_s = self._retry_at_s.setdefault(folder.partition, now_s + HALTED_RETRY_S)
        if now_s < due_s:
            return False
        self._retry_at_s[folder.partition] = now_s + HALTED_RETRY_S
        return True

    def _keep_up(self, folder: Folder) -> None:
        try:
            catch_up(folder, self._reader, should_stop=self._should_stop)
        except FoldStopped as error:
            folder.halt(error)
        else:
            if folder.halted is not None:
                folder.go_on()

    def _away(self, error: LogUnavailable) -> None:
        if self._log_answers:
            log.warning("the log does not answer: %s", error)
        self._log_answers = False
        self._watchdog.away(asyncio.get_running_loop().time())
