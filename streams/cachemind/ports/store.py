"""The stores: one owner writes, readers follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from cachemind.core.collecting import Held
from cachemind.core.requested import Requests
from cachemind.core.rollback_report import Quarantine, RollbackReport
from cachemind.core.state import (
    Change,
    ContextRow,
    Entry,
    EntryReader,
    NamespaceState,
    Step,
    VersionRow,
)
from cachemind.core.timeline import History, Span
from cachemind.types import ContextKey, EventId, ExactKey, Namespace, Offset, Version


class StoreHistory(Protocol):
    """The versions of one partition's namespaces. Raises: `StoreUnavailable`."""

    def history(self, namespace: Namespace) -> History:
        """Return the rollbacks and the head of `namespace`."""
        ...

    def versions(
        self, namespace: Namespace, first: Version, last: Version
    ) -> Sequence[VersionRow]:
        """Return the history rows in [first, last], in order."""
        ...

    def touched(
        self, namespace: Namespace, span: Span
    ) -> Mapping[Version, Sequence[ExactKey]]:
        """Return the keys whose entries each version in `span` changed."""
        ...

    def rollback_report(
        self, rollback_id: EventId, namespace: Namespace | None = None
    ) -> RollbackReport | None:
        """Return how a rollback ended, None where its record was not met yet.

        Without a `namespace`, of the first one that has a rollback with this id.
        """
        ...

    def rollback_met(self, rollback_id: EventId, namespace: Namespace) -> bool:
        """Return whether the record of a rollback was met, its report kept or not."""
        ...

    def horizon(self, namespace: Namespace) -> Version:
        """Return the first version that has a history row; 0 where none went."""
        ...

    def quarantine(self, namespace: Namespace) -> Quarantine | None:
        """Return why `namespace` must not be served, None where it may be."""
        ...

    def quarantined(self) -> Sequence[Namespace]:
        """Return every namespace that must not be served, by name."""
        ...


class HistoryStore(StoreHistory, Protocol):
    """A history whose oldest part can be given up. Raises: `StoreUnavailable`.

    State, digest and what the fold will do stay the same.
    """

    def forget_versions(self, namespace: Namespace, below: Version, limit: int) -> int:
        """Delete the rows of the oldest versions below `below`, at most `limit`.

        Returns how many went.
        """
        ...

    def forget_requests(self, namespace: Namespace, limit: int) -> int:
        """Delete requests of generations that are not remembered, at most `limit`.

        Returns how many went.
        """
        ...

    def forget_reports(
        self, horizons: Mapping[Namespace, Version], after: bytes, limit: int
    ) -> tuple[bytes | None, int]:
        """Forget how the rollbacks ended that are past their namespace's horizon.

        That they were met stays known. Looks at `limit` reports from `after` on, empty
        for the first; returns where to go on, None at the end, and how many it saw.
        """
        ...


class LiveStore(StoreHistory, Protocol):
    """What is true now, and how it came to be."""

    def namespace(self, namespace: Namespace) -> NamespaceState:
        """Return the folded state; an empty one for a namespace never seen."""
        ...

    def reader(self, namespace: Namespace) -> EntryReader:
        """Return read access to the entries of `namespace`."""
        ...

    def requests(self, namespace: Namespace) -> Requests:
        """Return the requests of `namespace` that are done."""
        ...


class StoreWriter(LiveStore, Protocol):
    """The owning process's view of one partition's store."""

    def applied(self) -> Offset:
        """Return the offset of the last record folded in; -1 where none."""
        ...

    def fence(self, namespace: Namespace, offset: Offset) -> None:
        """Say that state from before `offset` must not be served of `namespace`.

        Seen by every view at once. A hint in shared memory, not part of the state.
        """
        ...

    def commit(
        self, applied: Offset, steps: Mapping[Namespace, Sequence[Step]]
    ) -> None:
        """Make `steps` and the new applied offset durable, all or nothing.

        Every kept step's entries, hits, version row and last state go in with the
        journal row for `applied`; so do the report of a rollback, and the quarantine
        that it ends in or lifts. Raises: `StoreUnavailable`; nothing then changed.
        """
        ...

    def shadow(self, failpoint: Callable[[str], None]) -> ShadowStore:
        """Begin a copy of the store as it is, for changes too large for one commit.

        There is at most one: this ends a former one. `failpoint` is called with the
        name of each step that the copy takes. Raises: `StoreUnavailable`.
        """
        ...

    def close(self) -> None:
        """Flush and release the lock."""
        ...


class ShadowStore(Protocol):
    """A copy of a store that nobody sees until it takes the store's place, whole."""

    def put(
        self,
        namespace: Namespace,
        entries: Mapping[ExactKey, Entry | None],
        removed_contexts: Mapping[ExactKey, ContextKey],
    ) -> None:
        """Change entries of the copy; see `Step` for the arguments.

        Raises: `StoreUnavailable`.
        """
        ...

    def totals(self, namespace: Namespace) -> tuple[int, int]:
        """Return digest and number of the entries in the copy: a full scan.

        Raises: `StoreUnavailable`.
        """
        ...

    def commit(
        self, applied: Offset, steps: Mapping[Namespace, Sequence[Step]]
    ) -> None:
        """Commit to the copy as to a store, and put it in the store's place.

        All or nothing, on disk. Raises: `StoreUnavailable`; then nothing has changed,
        or the store is closed and whoever opens it next gets the copy.
        """
        ...

    def discard(self) -> None:
        """Remove the copy; after `commit` do nothing."""
        ...


class StoreView(LiveStore, Protocol):
    """A reader's view of one partition's store: always a whole batch, maybe old."""

    def catch_up(self) -> Offset:
        """Show what the owner has committed since; return the applied offset.

        Raises: `StoreUnavailable`.
        """
        ...

    def changed(self) -> bool:
        """Return whether the owner seems to have committed since `catch_up`.

        A hint from shared memory, under a microsecond; catch up now and then
        without it too.
        """
        ...

    def fenced_at(self, namespace: Namespace) -> Offset:
        """Return the offset that `namespace` is fenced at, -1 where it never was.

        While `applied` is below it, nothing of the namespace may be served.
        """
        ...

    def applied(self) -> Offset:
        """Return the applied offset of what is shown; -1 where none."""
        ...

    def raw_entry(self, namespace: Namespace, key: ExactKey) -> bytes | None:
        """Return the stored bytes of an entry (see `core.entry_bytes`)."""
        ...

    def context(
        self, namespace: Namespace, context: ContextKey
    ) -> Sequence[ContextRow]:
        """Return the vectors stored under one context key."""
        ...

    def changes_since(self, offset: Offset) -> Sequence[Change] | None:
        """Return the journal after `offset`; None where it no longer reaches back."""
        ...

    def close(self) -> None:
        """Release the files."""
        ...


class StoreInspector(StoreView, Protocol):
    """What operators' tools read besides: full scans."""

    def namespaces(self) -> Sequence[NamespaceState]:
        """Return every namespace of the partition, by name."""
        ...

    def entries(self, namespace: Namespace) -> Iterable[Entry]:
        """Return every entry of a namespace, in key order: a full scan."""
        ...

    def held(self, namespace: Namespace, after: ExactKey | None) -> Iterable[Held]:
        """Return how long each entry lives, in key order, from `after` on.

        `after` itself is left out; None for all of them.
        """
        ...
