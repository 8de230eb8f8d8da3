"""What a checkpoint shows: rows that never change."""

from __future__ import annotations

from cachemind.adapters.store_reading import Rows, RowView
from cachemind.types import Namespace, Offset


class CheckpointView(RowView):
    """A `StoreInspector` of rows that never change."""

    def __init__(self, rows: Rows) -> None:
        super().__init__()
        self.show(rows)

    def catch_up(self) -> Offset:
        """Return the offset of the last record in it."""
        return self.applied()

    def changed(self) -> bool:
        """Return False."""
        return False

    def fenced_at(self, namespace: Namespace) -> Offset:
        """Return -1: nothing in it is fenced."""
        del namespace
        return Offset(-1)

    def close(self) -> None:
        """Leave closing to who opened it."""
