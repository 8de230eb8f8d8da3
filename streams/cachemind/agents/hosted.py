"""Keeps trying to get a Faust app going while the cluster is away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Set
from typing import Final

import faust

from cachemind.agents.app import (
    go_on_at,
    go_on_just_at,
    held_partitions,
    hold_back,
    is_settled,
    serve,
)
from cachemind.errors import LogUnavailable, StepStuck
from cachemind.types import Offset, Partition

log = logging.getLogger(__name__)

RETRY_S: Final = 1.0


class HostedApp:
    """One group consumer. An app starts once only, so each attempt has its own.

    `ask_log` raises `LogUnavailable` while there is no point in an attempt, which
    costs file descriptors that Faust gives back late.
    """

    def __init__(
        self,
        build: Callable[[], faust.App],
        topic: str,
        ask_log: Callable[[], Awaitable[object]],
    ) -> None:
        """Build the first app. Raises: what `build` raises."""
        self._build = build
        self._topic = topic
        self._ask_log = ask_log
        self._app = build()

    def held(self, topic: str | None = None) -> Set[Partition]:
        """Return the partitions that are delivered just now, also of another topic."""
        return held_partitions(self._app, topic or self._topic)

    def settled(self) -> bool:
        """Return whether the group has said what is held; not while it decides."""
        return is_settled(self._app)

    def hold_back(self, partition: Partition, topic: str | None = None) -> None:
        """Have nothing of `partition` delivered until `go_on_at`; a hint."""
        if partition in self.held(topic):
            hold_back(self._app, topic or self._topic, partition)

    async def go_on_at(self, partition: Partition, offset: Offset) -> None:
        """Have `partition` delivered from `offset` on; a hint."""
        if partition in self.held():
            await go_on_at(self._app, self._topic, partition, offset)

    async def go_on_just_at(
        self, topic: str, partition: Partition, offset: Offset
    ) -> bool:
        """Have it delivered from `offset` on, with no gap; False: try again later."""
        if partition not in self.held(topic):
            return False
        return await go_on_just_at(self._app, topic, partition, offset)

    async def watch(self, patience_s: float, tick_s: float = RETRY_S) -> None:
        """Tick until cancelled.

        Raises: `StepStuck` where the group does not say for so long what is held,
        though the log answers.
        """
        loop = asyncio.get_running_loop()
        since_s = loop.time()
        while True:
            if self.settled() or not await self._log_answers():
                since_s = loop.time()
            elif loop.time() - since_s > patience_s:
                raise StepStuck("joining the group", patience_s)
            await asyncio.sleep(tick_s)

    async def _log_answers(self) -> bool:
        try:
            await self._ask_log()
        except LogUnavailable:
            return False
        return True

    async def run(self) -> None:
        """Start an app and run it; return once Faust gives a started one up."""
        while True:
            try:
                await self._ask_log()
                await serve(self._app)
            except LogUnavailable as error:
                log.warning("the group consumer waits for the log: %s", error)
                await asyncio.sleep(RETRY_S)
            else:
                return
            if self._app.started:
                self._app = self._build()
