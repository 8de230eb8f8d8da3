"""Finds out that the log is back, so that no request has to."""

from __future__ import annotations

import asyncio
import logging

from cachemind.errors import CacheError
from cachemind_services.gateway.deps import LogEnds
from cachemind_services.gateway.wal_session import LogLine

_LOG = logging.getLogger("cachemind.gateway")


class Recovery:
    """While appends fail, asks where the log ends; an answer means that it is back.

    If it answers and appends fail all the same, the next append says so again.
    """

    def __init__(self, line: LogLine, log_ends: LogEnds, every_s: float) -> None:
        self._line = line
        self._log_ends = log_ends
        self._every_s = every_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin watching."""
        self._task = asyncio.create_task(self._watch(), name="log-recovery")

    async def stop(self) -> None:
        """End watching."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            if self._line.available:
                continue
            try:
                await asyncio.to_thread(self._log_ends)
            except CacheError as error:
                _LOG.debug("the log is still away: %s", error)
                continue
            _LOG.info("the log answers again")
            self._line.recovered()
