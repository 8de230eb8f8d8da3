"""A store in memory with the behaviour of the real one, for tests and simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Lock

from cachemind.adapters.store_batch import Batch, batch_of, placing_rows
from cachemind.adapters.store_journal import DEFAULT_CHANGES, Journal
from cachemind.adapters.store_pruning import report_rows, request_rows, version_rows
from cachemind.adapters.store_reading import (
    LiveRows,
    NoRows,
    RowView,
    read_applied,
    read_totals,
)
from cachemind.core.state import Entry, Step
from cachemind.errors import StoreUnavailable
from cachemind.types import ContextKey, ExactKey, Namespace, Offset, Version


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


class MemoryStore(LiveRows):
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

    def forget_versions(self, namespace: Namespace, below: Version, limit: int) -> int:
        """Delete the rows of the oldest versions below `below`; return how many."""
        with self._lock:
            gone, count = version_rows(self.rows(), namespace, below, limit)
            self._rows = self.rows().changed(gone)
        return count

    def forget_requests(self, namespace: Namespace, limit: int) -> int:
        """Delete requests that nobody looks for any more; return how many."""
        with self._lock:
            gone = request_rows(self.rows(), namespace, limit)
            self._rows = self.rows().changed(gone)
        return len(gone)

    def forget_reports(
        self, horizons: Mapping[Namespace, Version], after: bytes, limit: int
    ) -> tuple[bytes | None, int]:
        """Forget how rollbacks past `horizons` ended; see `HistoryStore`."""
        with self._lock:
            found = report_rows(self.rows(), horizons, after, limit)
            self._rows = self.rows().changed(found.rows)
        return found.after, found.seen

    def shadow(self, failpoint: Callable[[str], None]) -> MemoryShadow:
        """Begin a copy of what is committed now."""

        def adopt(rows: MemoryRows, batch: Batch, applied: Offset) -> None:
            with self._lock:
                self._rows = rows.changed(batch.rows)
                self._journal.kept(applied, batch.changes)

        return MemoryShadow(self.rows(), self._journal, adopt, failpoint)

    def close(self) -> None:
        """Refuse further use; views keep what they show."""
        self._closed = True


class MemoryShadow:
    """`ShadowStore` of a `MemoryStore`."""

    def __init__(
        self,
        rows: MemoryRows,
        journal: Journal,
        adopt: Callable[[MemoryRows, Batch, Offset], None],
        failpoint: Callable[[str], None],
    ) -> None:
        """`adopt` makes rows and a last commit on top of them the store's own."""
        self._rows = rows
        self._journal = journal
        self._adopt = adopt
        self._failpoint = failpoint
        failpoint("shadow.begun")

    def put(
        self,
        namespace: Namespace,
        entries: Mapping[ExactKey, Entry | None],
        removed_contexts: Mapping[ExactKey, ContextKey],
    ) -> None:
        """Change entries of the copy."""
        changes = placing_rows(namespace, entries, removed_contexts)
        self._rows = self._rows.changed(changes)
        self._failpoint("shadow.put")

    def totals(self, namespace: Namespace) -> tuple[int, int]:
        """Return digest and number of the entries in the copy."""
        return read_totals(self._rows, namespace)

    def commit(
        self, applied: Offset, steps: Mapping[Namespace, Sequence[Step]]
    ) -> None:
        """Commit to the copy, and put it in the store's place."""
        before = read_applied(self._rows)
        batch = batch_of(self._journal, before, applied, steps)
        self._failpoint("shadow.sealed")
        self._adopt(self._rows, batch, applied)
        self._failpoint("shadow.opened")

    def discard(self) -> None:
        """Hold nothing that others see."""


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
