"""A store in memory with the behaviour of the real one, for tests and simulation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import Lock

from cachemind.adapters.store_batch import batch_of
from cachemind.adapters.store_journal import DEFAULT_CHANGES, Journal
from cachemind.adapters.store_reading import (
    LiveRows,
    NoRows,
    RowView,
    read_applied,
)
from cachemind.core.state import Step
from cachemind.errors import StoreUnavailable
from cachemind.types import Namespace, Offset


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
