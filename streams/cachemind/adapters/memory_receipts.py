"""An index of receipts in memory with the behaviour of the real one, for tests."""

from __future__ import annotations

from collections.abc import Iterable

from cachemind.adapters.memory_store import MemoryRows
from cachemind.adapters.receipt_indexing import KEPT, ReceiptIndexing, ReceiptRows
from cachemind.adapters.receipt_rows import Range, Row
from cachemind.adapters.store_reading import NoRows, Rows


class MemoryReceiptIndex(ReceiptIndexing):
    """`ReceiptIndex` over rows in memory, which its views share."""

    def __init__(self, partitions: int, kept: int = KEPT) -> None:
        self._rows = MemoryRows({})
        super().__init__(partitions, kept)

    def rows(self) -> MemoryRows:
        """Return the rows of this moment."""
        return self._rows

    def write(self, changes: Iterable[Row], gone: Iterable[Range]) -> None:
        """Write and delete at once."""
        left = self._rows.changed(changes)
        for first, end in gone:
            left = left.changed((key, None) for key, _ in left.scan(first, end))
        self._rows = left

    def view(self) -> MemoryReceiptView:
        """Return a reader that shows what it caught up with."""
        return MemoryReceiptView(self, self._partitions)

    def close(self) -> None:
        """Release nothing."""


class MemoryReceiptView(ReceiptRows):
    """`ReceiptFinder` over a `MemoryReceiptIndex`."""

    def __init__(self, owner: MemoryReceiptIndex, partitions: int) -> None:
        super().__init__(partitions)
        self._owner = owner
        self._rows: Rows = NoRows()

    def rows(self) -> Rows:
        """Return the rows as of the last catch-up."""
        return self._rows

    def changed(self) -> bool:
        """Return whether the owner has written since `catch_up`."""
        return self._rows is not self._owner.rows()

    def catch_up(self) -> None:
        """Show what the owner has written since."""
        self._rows = self._owner.rows()

    def close(self) -> None:
        """Release nothing."""
