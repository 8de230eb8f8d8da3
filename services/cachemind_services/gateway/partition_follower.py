"""Keeps a worker's view of one partition's store fresh, for all who look at it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol

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
class Caught:
    """What one catch-up showed of the namespaces that are followed.

    `changes` is None where the journal fell behind.
    """

    applied: Offset
    states: Mapping[Namespace, NamespaceState]
    quarantines: Mapping[Namespace, Quarantine | None]
    changes: Sequence[Change] | None

    def changes_of(self, namespace: Namespace) -> Sequence[Change] | None:
        """Return what of the changes is of `namespace`."""
        changes = self.changes
        if not changes or len(self.states) == 1:
            return changes  # who follows one namespace alone looks at each anyway
        return [change for change in changes if change.namespace == namespace]


class Following(Protocol):
    """Who is told of each catch-up, on the event loop."""

    @property
    def namespace(self) -> Namespace:
        """Return what is followed."""
        ...

    def take(self, caught: Caught) -> None:
        """Show what a catch-up brought."""
        ...


class PartitionFollower:
    """Catches up in a thread of its own whenever the owner has committed.

    It runs while anybody follows.
    """

    def __init__(
        self, view: StoreView, partition: Partition, log_ends: LogEnds
    ) -> None:
        self._view = view
        self.partition = partition
        self._log_ends = log_ends
        self._followers: list[Following] = []
        self._threads: ThreadPoolExecutor | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting: list[tuple[Offset, asyncio.Future[None]]] = []
        self._goal: Offset | None = None
        self._one_at_a_time = asyncio.Lock()
        self.applied = Offset(-1)
        self.problem: str | None = "the store was not read yet"

    @property
    def goal(self) -> Offset | None:
        """Return the log's last record as it first answered, None before it did."""
        return self._goal

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

    async def join(self, follower: Following) -> None:
        """Tell `follower` of each catch-up, of a first one before this returns."""
        self._followers.append(follower)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(2, thread_name_prefix="follower")
        await self._catch_up(self._threads)
        if not self._tasks and self._threads is not None:
            self._tasks = [
                asyncio.create_task(self._follow(self._threads), name="follow-store"),
                asyncio.create_task(
                    self._find_goal(self._threads), name="find-log-end"
                ),
            ]

    async def leave(self, follower: Following) -> None:
        """Tell `follower` no more; stop after the last."""
        if follower in self._followers:
            self._followers.remove(follower)
        if self._followers:
            return
        tasks, self._tasks = self._tasks, []
        threads, self._threads = self._threads, None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if threads is not None:
            await asyncio.to_thread(threads.shutdown)

    async def folded(self, offset: Offset, timeout_s: float) -> bool:
        """Return whether the view shows `offset` within `timeout_s`."""
        if self.applied >= offset:
            return True
        shown: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((offset, shown))
        await asyncio.wait([shown], timeout=timeout_s)
        self._waiting = [each for each in self._waiting if each[1] is not shown]
        return shown.done()

    async def _follow(self, threads: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            if loop.time() >= due or self._hinted():
                await self._catch_up(threads)
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

    async def _catch_up(self, threads: ThreadPoolExecutor) -> None:
        async with self._one_at_a_time:
            followers = tuple(self._followers)
            names = {follower.namespace for follower in followers}
            loop = asyncio.get_running_loop()
            try:
                caught = await loop.run_in_executor(
                    threads, self._read, self.applied, names
                )
            except CacheError as error:
                self._failed(error)
                return
            self.problem = None
            self.applied = caught.applied
            for follower in followers:
                if follower in self._followers:  # it may have left meanwhile
                    follower.take(caught)
            self._tell()

    def _read(self, before: Offset, names: set[Namespace]) -> Caught:
        view = self._view
        applied = view.catch_up()
        changes: Sequence[Change] | None = ()
        if applied != before:
            # Smaller where the owner rebuilt its store: another history.
            changes = view.changes_since(before) if applied > before else None
        return Caught(
            applied,
            {name: view.namespace(name) for name in names},
            {name: view.quarantine(name) for name in names},
            changes,
        )

    def _tell(self) -> None:
        for offset, shown in self._waiting:
            if self.applied >= offset and not shown.done():
                shown.set_result(None)

    def _failed(self, error: CacheError) -> None:
        problem = f"the store cannot be read: {error}"
        if problem != self.problem:
            _LOG.warning("%s", problem)
        self.problem = problem

    async def _find_goal(self, threads: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        while self._goal is None:
            try:
                ends = await loop.run_in_executor(threads, self._log_ends)
                self._goal = Offset(ends[self.partition] - 1)
            except CacheError as error:
                _LOG.warning("the log does not say where it ends: %s", error)
                await asyncio.sleep(FORCED_S)
