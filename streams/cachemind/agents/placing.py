"""Where the entries go that a rollback changes: into one commit, or into a shadow.

What fits into one write is held and goes in with the step. From there on a copy of the
store takes all of it, so that neither the memory nor the write grows with the rollback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from cachemind.core.rollback_check import require_totals
from cachemind.core.state import Entry, NamespaceState
from cachemind.core.totals import Changes
from cachemind.errors import RollbackRejected
from cachemind.ports import ShadowStore, StoreWriter
from cachemind.types import ContextKey, ExactKey, Namespace

ONE_WRITE_BYTES: Final = 64 << 20
"""Changes that go in with one write: RocksDB takes up to 4 GiB, but while it does they
are in memory four times, as entries, rows, batch and memtable."""

_KEY_BYTES: Final = 500
"""What a key's place in a write takes, also where its entry goes away: five rows."""


class Placing:
    """A `Placement` into `store`, for one namespace."""

    def __init__(
        self,
        store: StoreWriter,
        namespace: Namespace,
        one_write_bytes: int,
        failpoint: Callable[[str], None],
    ) -> None:
        """`failpoint` is called with the name of each step of a shadow."""
        self._store = store
        self._namespace = namespace
        self._one_write_bytes = one_write_bytes
        self._failpoint = failpoint
        self._bytes = 0
        self.entries: dict[ExactKey, Entry | None] = {}
        self.left: dict[ExactKey, ContextKey] = {}
        self.placed: list[ExactKey] = []
        self.shadow: ShadowStore | None = None

    def add(self, entries: Changes, left: Mapping[ExactKey, ContextKey]) -> None:
        """Take in what some more keys become. Raises: `StoreUnavailable`."""
        if self.shadow is not None:
            self._put(self.shadow, entries, left)
            return
        self.entries.update(entries)
        self.left.update(left)
        self._bytes += _bytes(entries.values())
        if self._bytes > self._one_write_bytes:
            self.shadow = self._store.shadow(self._failpoint)
            self._put(self.shadow, self.entries, self.left)
            self.entries, self.left = {}, {}

    def complete(self, after: NamespaceState) -> None:
        """Read back what a shadow holds, and check it as the whole was checked.

        Raises: `RollbackRejected`, `StoreUnavailable`.
        """
        if self.shadow is None:
            return
        digest, entries = self.shadow.totals(self._namespace)
        found = replace(after, digest=digest, entries=entries)
        try:
            require_totals(found, after.digest, after.entries)
        except RollbackRejected as error:
            raise RollbackRejected(f"in the store's copy: {error.reason}") from error
        self._failpoint("shadow.validated")

    def discard(self) -> None:
        """Forget all of it."""
        if self.shadow is not None:
            self.shadow.discard()

    def _put(
        self,
        shadow: ShadowStore,
        entries: Changes,
        left: Mapping[ExactKey, ContextKey],
    ) -> None:
        shadow.put(self._namespace, entries, left)
        self.placed.extend(entries)


def _bytes(entries: Iterable[Entry | None]) -> int:
    return sum(
        _KEY_BYTES + (0 if entry is None else entry.held_bytes) for entry in entries
    )
