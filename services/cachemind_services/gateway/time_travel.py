"""What the versions API needs of a namespace's past, and one thread to ask it in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

from cachemind.core.delta import Delta
from cachemind.core.rollback import Plan
from cachemind.core.rollback_report import (
    Quarantine,
    RollbackProgress,
    RollbackReport,
    Strategy,
)
from cachemind.core.snapshots import SnapshotManifest
from cachemind.core.state import Entry, NamespaceState, VersionRow
from cachemind.core.timeline import History
from cachemind.errors import CacheError, InvalidRequest
from cachemind.types import EventId, ExactKey, Lsn, Namespace, Offset, Version

T = TypeVar("T")
DEADLINE_S: Final = 30.0
MOST_WAITING: Final = 8
NOT_HERE: Final = 501


class Rehearsal(Protocol):
    """What a rollback would do, and what it took to find out."""

    @property
    def plan(self) -> Plan:
        """Return the way from head to target."""
        ...

    @property
    def delta(self) -> Delta:
        """Return what differs."""
        ...

    @property
    def replayed(self) -> int:
        """Return the number of events replayed."""
        ...

    @property
    def base(self) -> Offset:
        """Return the checkpoint's offset, -1 for the log's start."""
        ...

    @property
    def digest(self) -> int:
        """Return the namespace's digest afterwards."""
        ...

    @property
    def strategy(self) -> Strategy:
        """Return how it was validated."""
        ...


class TimeTravel(Protocol):
    """The past of one partition's namespaces. Blocks; use it from one thread.

    Every method but `close` raises `StoreUnavailable`; those that rebuild a state
    `LogUnavailable` and `RollbackRejected`, and `UnknownVersion` for one that never
    was.
    """

    def catch_up(self) -> Offset:
        """Show what is folded by now; return the applied offset."""
        ...

    def log_end(self) -> Offset:
        """Return the offset after the last record. Raises: `LogUnavailable`."""
        ...

    def state(self, namespace: Namespace) -> NamespaceState:
        """Return the folded state."""
        ...

    def history(self, namespace: Namespace) -> History:
        """Return the rollbacks and the head."""
        ...

    def versions(
        self, namespace: Namespace, first: Version, last: Version
    ) -> Sequence[VersionRow]:
        """Return the history rows in [first, last], in order."""
        ...

    def quarantine(self, namespace: Namespace) -> Quarantine | None:
        """Return why the namespace is not served, None where it is."""
        ...

    def is_quarantined(self, namespace: Namespace) -> bool:
        """Return whether the namespace must not be served."""
        ...

    def report(
        self, namespace: Namespace, rollback_id: EventId
    ) -> RollbackReport | None:
        """Return how a rollback ended, None where it did not yet."""
        ...

    def met(self, namespace: Namespace, rollback_id: EventId) -> bool:
        """Return whether a rollback was folded, its report kept or not."""
        ...

    def pending(self, namespace: Namespace, rollback_id: EventId) -> Lsn | None:
        """Return where a rollback's record is that is not folded yet, None for none.

        Raises: `LogUnavailable`, also where too much is not folded to look through.
        """
        ...

    def progress(self) -> RollbackProgress | None:
        """Return how far the rollback is that the fold works on, None for none."""
        ...

    def reaches(self, namespace: Namespace, version: Version) -> bool:
        """Return whether checkpoints and log still lead to `version`."""
        ...

    def begins(self, namespace: Namespace) -> Version:
        """Return the oldest version that something kept leads to."""
        ...

    def rehearse(
        self, namespace: Namespace, target: Version, strategy: Strategy
    ) -> Rehearsal:
        """Return what a rollback to `target` would do, validated; changes nothing."""
        ...

    def difference(self, namespace: Namespace, one: Version, other: Version) -> Delta:
        """Return what leads from the entries of `one` to those of `other`."""
        ...

    def entry_at(
        self, namespace: Namespace, version: Version, key: ExactKey
    ) -> Entry | None:
        """Return the entry at `key` as of `version`, None where there was none."""
        ...

    def snapshot(self, name: str) -> SnapshotManifest | None:
        """Return the newest snapshot of this name or id, None where there is none."""
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


class TooBusy(CacheError):
    """The past is asked for by too many, or took too long."""


class PastThread:
    """Asks a `TimeTravel` from the event loop: one at a time, never blocking it.

    It is opened with the first question.
    """

    def __init__(
        self, opened: Callable[[], TimeTravel], deadline_s: float = DEADLINE_S
    ) -> None:
        self._open = opened
        self._travel: TimeTravel | None = None
        self._deadline_s = deadline_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="past")
        self._waiting = 0

    async def ask(self, question: Callable[[TimeTravel], T]) -> T:
        """Return the answer to `question`, asked of the newest state.

        Raises: `TooBusy`, and what the question raises. One that takes too long is
        left to end by itself; the next ones wait for it.
        """
        if self._waiting >= MOST_WAITING:
            raise TooBusy("too many questions about the past wait already")
        self._waiting += 1

        def work() -> T:
            travel = self._travel
            if travel is None:
                travel = self._travel = self._open()
            travel.catch_up()
            return question(travel)

        asked = asyncio.get_running_loop().run_in_executor(self._thread, work)
        asked.add_done_callback(self._answered)
        try:
            return await asyncio.wait_for(asyncio.shield(asked), self._deadline_s)
        except TimeoutError:
            raise TooBusy(f"no answer within {self._deadline_s:.0f} s") from None

    def close(self) -> None:
        """Wait for the question at hand, then release everything."""
        self._thread.shutdown(cancel_futures=True)
        if self._travel is not None:
            self._travel.close()

    def _answered(self, asked: asyncio.Future[T]) -> None:
        self._waiting -= 1
        if not asked.cancelled():
            asked.exception()  # nobody else looks where it came too late


class TimeTraveller:
    """Asks for the past of one namespace."""

    def __init__(self, past: PastThread | None, namespace: Namespace) -> None:
        """Without a `past` every question is refused with 501."""
        self._past = past
        self.namespace = namespace

    async def ask(self, question: Callable[[TimeTravel], T]) -> T:
        """Return the answer to `question`, asked of the newest state.

        Raises: `TooBusy`, and what the question raises.
        """
        if self._past is None:
            problem = "this gateway knows one state only"
            raise InvalidRequest("path", problem, status=NOT_HERE)
        return await self._past.ask(question)
