"""Checkpoints in memory with the behaviour of the real ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cachemind.adapters.memory_store import MemoryRows, MemoryStore
from cachemind.adapters.store_reading import RowView
from cachemind.core.rollback import Base
from cachemind.errors import CheckpointRefused
from cachemind.ports import StoreInspector
from cachemind.types import Namespace, Offset


class MemoryCheckpoints:
    """`Checkpoints` over rows that were kept."""

    def __init__(self) -> None:
        self._kept: dict[Offset, MemoryRows] = {}
        self.damaged: set[Offset] = set()

    def create(self, store: MemoryStore) -> Offset:
        """Keep what `store` holds now; return its applied offset."""
        offset = store.applied()
        self._kept[offset] = store.rows()
        return offset

    def rows(self, offset: Offset) -> MemoryRows:
        """Return the rows of a checkpoint."""
        return self._kept[offset]

    def put(self, offset: Offset, rows: MemoryRows) -> None:
        """Make a checkpoint of `rows`, whatever they are."""
        self._kept[offset] = rows

    def prune(self, offset: Offset) -> None:
        """Let a checkpoint go."""
        self._kept.pop(offset, None)

    def bases(self, namespace: Namespace) -> Sequence[Base]:
        """Return what each checkpoint holds of `namespace`."""
        return [
            Base(offset=offset, version=state.version, digest=state.digest)
            for offset, rows in self._kept.items()
            for state in _shown(rows).namespaces()
            if state.namespace == namespace
        ]

    @contextmanager
    def open(self, offset: Offset) -> Iterator[StoreInspector]:
        """Open the checkpoint at `offset`. Raises: `CheckpointRefused`."""
        rows = self._kept.get(offset)
        if rows is None or offset in self.damaged:
            raise CheckpointRefused(str(offset), "it is damaged or gone")
        yield _shown(rows)


class _KeptView(RowView):
    """A `StoreInspector` of rows that never change."""

    def catch_up(self) -> Offset:
        return self.applied()

    def changed(self) -> bool:
        return False

    def fenced_at(self, namespace: Namespace) -> Offset:
        del namespace
        return Offset(-1)

    def close(self) -> None:
        """Hold nothing."""


def _shown(rows: MemoryRows) -> _KeptView:
    view = _KeptView()
    view.show(rows)
    return view
