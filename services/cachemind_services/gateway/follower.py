"""Keeps a worker's view of its partition's store fresh, and knows how fresh it is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from cachemind.core.rollback_report import Quarantine
from cachemind.core.state import NamespaceState
from cachemind.errors import CacheError
from cachemind.ports import Change, StoreView
from cachemind.types import Namespace, Offset, Partition
from cachemind_services.gateway.deps import LogEnds

_LOG: Final = logging.getLogger("cachemind.gateway")
POLL_S: Final = 0.003
PAUSE_S: Final = 0.01
"""After a catch-up, where nobody waits for the next: under load the fold commits
often, and most commits hold look-ups only."""

FORCED_S: Final = 1.0
"""Catch up that often without a hint."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """What a catch-up brought. `changes` is None where the journal fell behind."""

    applied: Offset
    state: NamespaceState
    changes: Sequence[Change] | None
    quarantine: Quarantine | None = None


class Follower:
    """Catches up in a thread of its own whenever the owner has committed.

    `on_fresh` runs on the event loop after each catch-up.
    """

    def __init__(
        self,
        view: StoreView,
        namespace: Namespace,
        partition: Partition,
        log_ends: LogEnds,
        on_fresh: Callable[[Freshness], None],
    ) -> None:
        self._view = view
        self._namespace = namespace
        self.partition = partition
        self._log_ends = log_ends
        self._on_fresh = on_fresh
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="follower")
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting: list[tuple[Offset, asyncio.Future[None]]] = []
        self._goal: Offset | None = None
        self.applied = Offset(-1)
        self.state = NamespaceState(namespace=namespace)
        self.quarantine: Quarantine | None = None
        self.problem: str | None = "the store was not read yet"

    @property
    def not_ready(self) -> str | None:
        """Return why this worker is not caught up with the log, None once it is.

        Caught up means: it shows all that the log held when it first answered.
        """
        if self.problem is not None:
            return self.problem
        if self._goal is None:
            return "the log did not say yet where it ends"
        if self.applied < self._goal:
            return f"the store is at {self.applied} of {self._goal}"
        return None

    async def start(self) -> None:
        """Begin following, after a first look at what is there.

        Without it the first requests would miss what the store has.
        """
        await self._catch_up(asyncio.get_running_loop())
        self._tasks = [
            asyncio.create_task(self._follow(), name="follow-store"),
            asyncio.create_task(self._find_goal(), name="find-log-end"),
        ]

    async def stop(self) -> None:
        """End following."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._threads.shutdown)

    async def folded(self, offset: Offset, timeout_s: float) -> bool:
        """Return whether the view shows `offset` within `timeout_s`."""
        if self.applied >= offset:
            return True
        shown: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((offset, shown))
        await asyncio.wait([shown], timeout=timeout_s)
        self._waiting = [each for each in self._waiting if each[1] is not shown]
        return shown.done()

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            if loop.time() >= due or self._hinted():
                await self._catch_up(loop)
                due = loop.time() + FORCED_S
                if not self._waiting:
                    await asyncio.sleep(PAUSE_S)
            await asyncio.sleep(POLL_S)

    def _hinted(self) -> bool:
        try:
            return self.problem is None and self._view.changed()
        except CacheError as error:
            self._failed(error)
            return False

    async def _catch_up(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            fresh = await loop.run_in_executor(self._threads, self._read, self.applied)
        except CacheError as error:
            self._failed(error)
            return
        self.problem = None
        self.applied, self.state = fresh.applied, fresh.state
        self.quarantine = fresh.quarantine
        self._on_fresh(fresh)
        self._tell()

    def _read(self, before: Offset) -> Freshness:
        applied = self._view.catch_up()
        changes: Sequence[Change] | None = ()
        if applied != before:
            # Smaller where the owner rebuilt its store: another history.
            changes = self._view.changes_since(before) if applied > before else None
        namespace = self._namespace
        state = self._view.namespace(namespace)
        return Freshness(applied, state, changes, self._view.quarantine(namespace))

    def _tell(self) -> None:
        for offset, shown in self._waiting:
            if self.applied >= offset and not shown.done():
                shown.set_result(None)

    def _failed(self, error: CacheError) -> None:
        problem = f"the store cannot be read: {error}"
        if problem != self.problem:
            _LOG.warning("%s", problem)
        self.problem = problem

    async def _find_goal(self) -> None:
        loop = asyncio.get_running_loop()
        while self._goal is None:
            try:
                ends = await loop.run_in_executor(self._threads, self._log_ends)
                self._goal = Offset(ends[self.partition] - 1)
            except CacheError as error:
                _LOG.warning("the log does not say where it ends: %s", error)
                await asyncio.sleep(FORCED_S)
