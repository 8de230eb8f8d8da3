"""What differs between two whole states of one namespace, one entry at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Final

from cachemind.core.delta import EntryChange
from cachemind.core.state import Entry

FIELDS: Final = tuple(item.name for item in fields(Entry))


def changes(before: Iterable[Entry], after: Iterable[Entry]) -> Iterator[EntryChange]:
    """Yield what differs, in key order. Both must come in key order.

    Holds one entry of each at a time, so neither state has to fit in memory.
    """
    old, new = iter(before), iter(after)
    left, right = next(old, None), next(new, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left.exact_key < right.exact_key):
            if left is not None:  # always: says so to the type checker
                yield EntryChange(left.exact_key, left, None)
            left = next(old, None)
        elif left is None or right.exact_key < left.exact_key:
            yield EntryChange(right.exact_key, None, right)
            right = next(new, None)
        else:
            if left != right:
                yield EntryChange(left.exact_key, left, right)
            left, right = next(old, None), next(new, None)


def changed_fields(change: EntryChange) -> tuple[str, ...]:
    """Return the names of the fields that differ; none where a side is absent."""
    one, other = change.before, change.after
    if one is None or other is None:
        return ()
    return tuple(n for n in FIELDS if getattr(one, n) != getattr(other, n))
