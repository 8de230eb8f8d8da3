"""What a rollback does to a namespace, put together part by part.

A part is checked, taken off the totals, handed on to whoever brings it into a store,
and let go, unless somebody wants to see it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from cachemind.core.delta import ChangeKind, Delta, EntryChange
from cachemind.core.rollback_check import require_entries
from cachemind.core.rollback_report import Strategy
from cachemind.core.state import NamespaceState
from cachemind.core.totals import Changes, totals
from cachemind.types import ContextKey, ExactKey

SHOWN_BYTES: Final = 64 << 20
"""Of changes that are held to be shown: whoever shows them shows a part of that."""

Place = Callable[[Changes, Mapping[ExactKey, ContextKey]], None]
"""Takes what keys become and the contexts that they left, see `Step`."""


def nowhere(entries: Changes, left: Mapping[ExactKey, ContextKey]) -> None:
    """Take what becomes of entries and do nothing with it."""


class Restoration:
    """The sum of all parts added so far."""

    def __init__(
        self,
        live: NamespaceState,
        strategy: Strategy,
        *,
        keep_changes: int,
        place: Place = nowhere,
    ) -> None:
        """The first `keep_changes` changes are kept, to be shown, as far as they fit.

        Each part goes to `place` once it is checked.
        """
        self.after = live
        self.counts: Counter[ChangeKind] = Counter()
        self.changes: list[EntryChange] = []
        self._strategy = strategy
        self._keep_changes = keep_changes
        self._place = place
        self._shown_bytes = 0

    def add(self, part: Delta) -> None:
        """Check and hand on what differs at some more keys.

        Raises: `RollbackRejected`, and what `place` raises.
        """
        require_entries(self._strategy, part)
        before = {change.key: change.before for change in part.changes}
        entries = part.entries()
        after = self.after
        sums, left = totals(after, before.get, entries)
        self.after = after.advanced(after.version, after.counts, sums)
        for change in part.changes:
            self.counts[change.kind] += 1
            self._keep(change)
        self._place(entries, left)

    def delta(self) -> Delta:
        """Return what was added, as far as it was kept."""
        kept = Counter(change.kind for change in self.changes)
        return Delta(tuple(self.changes), self.counts - kept)

    def _keep(self, change: EntryChange) -> None:
        self._shown_bytes += change.held_bytes
        # Once one does not fit none does: those that are shown are the first ones.
        if len(self.changes) < self._keep_changes and self._shown_bytes <= SHOWN_BYTES:
            self.changes.append(change)
