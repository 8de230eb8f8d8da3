"""What a namespace's totals are once some of its entries have changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cachemind.core import digest
from cachemind.core.entry_bytes import encode
from cachemind.core.state import Entry, NamespaceState, Totals
from cachemind.types import ContextKey, ExactKey

Changes = Mapping[ExactKey, Entry | None]


def totals(
    state: NamespaceState,
    before_of: Callable[[ExactKey], Entry | None],
    changes: Changes,
) -> tuple[Totals, Mapping[ExactKey, ContextKey]]:
    """Return the totals of `state` after `changes`, and the contexts that keys left.

    `before_of` gives the entry that is at a key now.
    """
    left: dict[ExactKey, ContextKey] = {}
    sums = _Sums(state)
    for key, entry in changes.items():
        before = before_of(key)
        if before is not None:
            sums.take(before)
            if _leaves_context(before, entry):
                left[key] = before.context_key
        if entry is not None:
            sums.put(entry)
    return sums.totals(), left


def _leaves_context(before: Entry, after: Entry | None) -> bool:
    return (
        after is None
        or after.context_key != before.context_key
        or (after.embedding is None and before.embedding is not None)
    )


class _Sums:
    """The totals over all entries while a step changes some of them."""

    def __init__(self, state: NamespaceState) -> None:
        self._digest, self._entries, self._bytes = state.totals

    def put(self, entry: Entry) -> None:
        raw = encode(entry)
        self._digest += digest.term(entry.exact_key, raw)
        self._entries += 1
        self._bytes += len(raw)

    def take(self, entry: Entry) -> None:
        raw = encode(entry)
        self._digest -= digest.term(entry.exact_key, raw)
        self._entries -= 1
        self._bytes -= len(raw)

    def totals(self) -> Totals:
        return self._digest % digest.MODULUS, self._entries, self._bytes
