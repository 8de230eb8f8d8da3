"""Brings every store close to the log's end before anything is live."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from cachemind.agents.folding import Folder
from cachemind.agents.own_thread import OwnThread
from cachemind.agents.replay import catch_up
from cachemind.errors import FoldStopped, LogUnavailable
from cachemind.ports import LogReader
from cachemind.types import Lsn, Offset

log = logging.getLogger(__name__)

RETRY_S: Final = 0.5
PROGRESS_LOG_S: Final = 5.0


async def cold_start(
    folders: Iterable[Folder],
    reader: LogReader,
    fold_thread: OwnThread,
    should_stop: Callable[[], bool],
) -> None:
    """Replay each partition in bulk; wait as long as the log is away.

    A partition that stops is halted, and the others are brought up to date.
    Raises: `StoreError`.
    """
    for folder in folders:
        try:
            await _replay(folder, reader, fold_thread, should_stop)
        except FoldStopped as error:
            folder.halt(error)


async def _replay(
    folder: Folder,
    reader: LogReader,
    fold_thread: OwnThread,
    should_stop: Callable[[], bool],
) -> None:
    progress = ReplayLog()
    while True:
        try:
            await fold_thread.run(
                catch_up, folder, reader, progress=progress, should_stop=should_stop
            )
            return
        except LogUnavailable as error:
            log.warning("the replay waits for the log: %s", error)
            await asyncio.sleep(RETRY_S)


class ReplayLog:
    """Says every few seconds how far a replay is."""

    def __init__(self) -> None:
        self._said_s = time.monotonic()

    def __call__(self, folder: Folder, end: Offset) -> None:
        """Log the position, unless that was done a moment ago."""
        now_s = time.monotonic()
        if now_s - self._said_s >= PROGRESS_LOG_S:
            self._said_s = now_s
            log.info("replayed to %s of %d", Lsn(folder.partition, folder.applied), end)
