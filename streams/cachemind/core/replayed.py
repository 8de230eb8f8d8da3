"""What a replay has changed over a base, with a bounded part of it in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import merge as merge_sorted
from typing import Final, Protocol

from cachemind.core.state import Entry, EntryReader, Hits
from cachemind.core.totals import Changes
from cachemind.core.working_set import Overlay
from cachemind.types import ExactKey

HELD_BYTES: Final = 64 << 20
"""Of changed entries, before they are put aside."""

_KEY_BYTES: Final = 200
"""What it takes to remember that an entry is gone."""


class Aside(Protocol):
    """Where entries are put that are too many for memory, None for gone.

    Raises: `StoreUnavailable`.
    """

    def put(self, entries: Mapping[ExactKey, Entry | None]) -> None:
        """Keep these, in the place of what was kept at the same keys."""
        ...

    def get(self, key: ExactKey) -> tuple[Entry | None] | None:
        """Return what was kept at `key`, in a tuple; None where nothing was."""
        ...

    def entries(self) -> Iterable[Entry]:
        """Return the entries that were kept and are not gone, in key order."""
        ...


class InMemory:
    """An `Aside` for what fits anyway."""

    def __init__(self) -> None:
        self._kept: dict[ExactKey, Entry | None] = {}

    def put(self, entries: Mapping[ExactKey, Entry | None]) -> None:
        """Keep these."""
        self._kept.update(entries)

    def get(self, key: ExactKey) -> tuple[Entry | None] | None:
        """Return what was kept at `key`, in a tuple; None where nothing was."""
        return (self._kept[key],) if key in self._kept else None

    def entries(self) -> Iterable[Entry]:
        """Return the entries that were kept and are not gone, in key order."""
        found = (self._kept[key] for key in sorted(self._kept))
        return [entry for entry in found if entry is not None]


class Replayed:
    """An `EntryReader`: the base's entries with the replay's changes over them."""

    def __init__(self, base: EntryReader, aside: Aside) -> None:
        """From `HELD_BYTES` of changes on they go to `aside`."""
        self._lower = _Lower(base, aside)
        self._aside = aside
        self._start()

    def put(self, changes: Changes) -> None:
        """Lay what one more event changed over what is there."""
        self._upper.put(changes)
        self._changed.update(changes)
        for entry in changes.values():
            self._bytes += _KEY_BYTES if entry is None else entry.held_bytes
        if self._bytes > HELD_BYTES:
            self._aside.put(self._changed)
            self._start()

    def entry(self, key: ExactKey) -> Entry | None:
        """Return the entry at `key`, None where absent."""
        return self._upper.entry(key)

    def entries(self) -> Iterable[Entry]:
        """Return every entry of the namespace, in key order."""
        return self._upper.entries()

    def _start(self) -> None:
        self._upper = Overlay(self._lower)
        self._changed: dict[ExactKey, Entry | None] = {}
        self._bytes = 0


class _Lower:
    """The base with what was put aside over it."""

    def __init__(self, base: EntryReader, aside: Aside) -> None:
        self._base = base
        self._aside = aside

    def entry(self, key: ExactKey) -> Entry | None:
        kept = self._aside.get(key)
        return self._base.entry(key) if kept is None else kept[0]

    def hits(self, key: ExactKey) -> Hits | None:
        return self._base.hits(key)

    def entries(self) -> Iterable[Entry]:
        return merge_sorted(
            self._untouched(),
            self._aside.entries(),
            key=lambda entry: entry.exact_key,
        )

    def _untouched(self) -> Iterator[Entry]:
        for entry in self._base.entries():
            if self._aside.get(entry.exact_key) is None:
                yield entry
