"""What a rollback does to a namespace, put together part by part.

Only what the step needs is held: the entries that come back. Those that go or change
are read, taken off the totals and let go, unless somebody wants to see them.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from cachemind.core.delta import ChangeKind, Delta, EntryChange
from cachemind.core.rollback_check import require_entries
from cachemind.core.rollback_report import Strategy
from cachemind.core.state import Entry, NamespaceState
from cachemind.core.totals import totals
from cachemind.errors import RollbackRejected
from cachemind.types import ContextKey, ExactKey

MAX_BYTES: Final = 1 << 30
"""Largest sum of restored prompts, responses and vectors: they are held in memory and
go into one write, for which RocksDB's limit is 4 GiB."""


class Restoration:
    """The sum of all parts added so far."""

    def __init__(
        self, live: NamespaceState, strategy: Strategy, *, keep_changes: int
    ) -> None:
        """The first `keep_changes` changes are kept, to be shown."""
        self.after = live
        self.entries: dict[ExactKey, Entry | None] = {}
        self.left: dict[ExactKey, ContextKey] = {}
        self.counts: Counter[ChangeKind] = Counter()
        self.changes: list[EntryChange] = []
        self._strategy = strategy
        self._keep_changes = keep_changes
        self._bytes = 0

    def add(self, part: Delta) -> None:
        """Check and take in what differs at some more keys.

        Raises: `RollbackRejected`, also where it is more than this process may hold.
        """
        require_entries(self._strategy, part)
        before = {change.key: change.before for change in part.changes}
        entries = part.entries()
        self.after, left = totals(self.after, before.get, entries)
        self.entries.update(entries)
        self.left.update(left)
        for change in part.changes:
            self.counts[change.kind] += 1
            self._bytes += _size(change.after)
        if self._bytes > MAX_BYTES:
            raise RollbackRejected(
                f"it restores more than {MAX_BYTES >> 20} MiB of entries at once"
            )
        room = max(0, self._keep_changes - len(self.changes))
        self.changes.extend(part.changes[:room])

    def delta(self) -> Delta:
        """Return what was added, as far as it was kept."""
        kept = Counter(change.kind for change in self.changes)
        return Delta(tuple(self.changes), self.counts - kept)


def _size(entry: Entry | None) -> int:
    if entry is None:
        return 0
    prompt, vector = entry.prompt or "", entry.embedding or b""
    return len(entry.response) + len(prompt) + len(vector)
