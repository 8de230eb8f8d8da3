"""A store in memory with the behaviour of the real one, for tests and simulation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import Lock

from cachemind.adapters.store_batch import batch_of
from cachemind.adapters.store_journal import DEFAULT_CHANGES, Journal
from cachemind.adapters.store_reading import (
    NoRows,
    RowEntries,
    RowHistory,
    RowView,
    read_applied,
    read_state,
)
from cachemind.core.rollback_report import Quarantine, RollbackReport
from cachemind.core.state import EntryReader, NamespaceState, Step, VersionRow
from cachemind.core.timeline import History, Span
from cachemind.errors import StoreUnavailable
from cachemind.types import EventId, ExactKey, Namespace, Offset, Version


class MemoryRows:
    """An ordered map of bytes that is replaced as a whole, never changed."""

    def __init__(self, rows: Mapping[bytes, bytes]) -> None:
        self._rows = rows

    def get(self, key: bytes) -> bytes | None:
        """Return the value at `key`."""
        return self._rows.get(key)

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows with keys in [first, end), in order."""
        for key in sorted(key for key in self._rows if first <= key < end):
            yield key, self._rows[key]

    def changed(self, changes: Iterable[tuple[bytes, bytes | None]]) -> MemoryRows:
        """Return the map after `changes`."""
        rows = dict(self._rows)
        for key, value in changes:
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value
        return MemoryRows(rows)


class MemoryStore:
    """`StoreWriter` over rows in memory, which its views share."""

    def __init__(self, *, journal_changes: int = DEFAULT_CHANGES) -> None:
        self._rows = MemoryRows({})
        self._closed = False
        self._journal = Journal(journal_changes, ())
        self._lock = Lock()
        self._fences: dict[Namespace, Offset] = {}

    def rows(self) -> MemoryRows:
        """Return the committed rows of this moment. Raises: `StoreUnavailable`."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        return self._rows

    def view(self) -> MemoryView:
        """Return a reader that has seen nothing yet."""
        return MemoryView(self)

    def applied(self) -> Offset:
        """Return the offset of the last record folded in; -1 where none."""
        return read_applied(self.rows())

    def namespace(self, namespace: Namespace) -> NamespaceState:
        """Return the folded state; an empty one for a namespace never seen."""
        return read_state(self.rows(), namespace)

    def reader(self, namespace: Namespace) -> EntryReader:
        """Return read access to the entries of `namespace` as they are now."""
        return RowEntries(self.rows(), namespace)

    def history(self, namespace: Namespace) -> History:
        """Return the rollbacks and the head of `namespace`."""
        return RowHistory(self.rows()).history(namespace)

    def versions(
        self, namespace: Namespace, first: Version, last: Version
    ) -> Sequence[VersionRow]:
        """Return the history rows in [first, last], in order."""
        return RowHistory(self.rows()).versions(namespace, first, last)

    def touched(
        self, namespace: Namespace, span: Span
    ) -> Mapping[Version, Sequence[ExactKey]]:
        """Return the keys whose entries each version in `span` changed."""
        return RowHistory(self.rows()).touched(namespace, span)

    def rollback_report(
        self, rollback_id: EventId, namespace: Namespace | None = None
    ) -> RollbackReport | None:
        """Return how a rollback ended, None where its record was not met yet.

        Without a `namespace`, of the first one that has a rollback with this id.
        """
        return RowHistory(self.rows()).rollback_report(rollback_id, namespace)

    def quarantine(self, namespace: Namespace) -> Quarantine | None:
        """Return why `namespace` must not be served, None where it may be."""
        return RowHistory(self.rows()).quarantine(namespace)

    def quarantined(self) -> Sequence[Namespace]:
        """Return every namespace that must not be served, by name."""
        return RowHistory(self.rows()).quarantined()

    def fence(self, namespace: Namespace, offset: Offset) -> None:
        """Say that nothing older than `offset` may be served of `namespace`."""
        self._fences[namespace] = offset

    def fenced_at(self, namespace: Namespace) -> Offset:
        """Return the offset that `namespace` is fenced at, -1 where it never was."""
        return self._fences.get(namespace, Offset(-1))

    def commit(
        self, applied: Offset, steps: Mapping[Namespace, Sequence[Step]]
    ) -> None:
        """Make `steps` and the new applied offset visible, all or nothing.

        Raises: `StoreUnavailable` after `close`.
        """
        with self._lock:
            rows = self.rows()
            batch = batch_of(self._journal, read_applied(rows), applied, steps)
            self._rows = rows.changed(batch.rows)
            self._journal.kept(applied, batch.changes)

    def close(self) -> None:
        """Refuse further use; views keep what they show."""
        self._closed = True


class MemoryView(RowView):
    """`StoreInspector` over a `MemoryStore`, as it was at the last catch-up."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__()
        self._store = store

    def catch_up(self) -> Offset:
        """Show what is committed; return the applied offset."""
        return self.show(self._store.rows())

    def changed(self) -> bool:
        """Return whether the owner has committed since `catch_up`."""
        return self._rows is not self._store.rows()

    def fenced_at(self, namespace: Namespace) -> Offset:
        """Return the offset that `namespace` is fenced at, -1 where it never was."""
        return self._store.fenced_at(namespace)

    def close(self) -> None:
        """Let go of the rows."""
        self.show(NoRows())
