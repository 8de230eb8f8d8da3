"""Acknowledged events that the store does not show yet: read your own writes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cachemind.core import entry_bytes
from cachemind.core.fold import apply
from cachemind.core.selection import selected
from cachemind.core.state import Entry, Hits, NamespaceState
from cachemind.events import Envelope, Invalidated
from cachemind.types import ExactKey, Lsn, Offset, Timeline


@dataclass(frozen=True, slots=True)
class _OneEntry:
    """An `EntryReader` over at most one entry."""

    only: Entry | None = None

    def entry(self, key: ExactKey) -> Entry | None:
        return self.only if self.only and self.only.exact_key == key else None

    def hits(self, key: ExactKey) -> Hits | None:
        return None

    def entries(self) -> Iterable[Entry]:
        return () if self.only is None else (self.only,)


ENTRY_BYTES: Final = 1_024
"""Of an entry's objects, whatever they hold."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    offset: Offset
    entry: Entry
    raw: bytes

    @property
    def cost_bytes(self) -> int:
        """Return what it takes in memory: the bytes, and the entry they came from."""
        return 2 * len(self.raw) + ENTRY_BYTES


@dataclass(frozen=True, slots=True)
class _Hiding:
    offset: Offset
    event: Invalidated
    occurred_at_ns: int

    def hides(self, entry: Entry) -> bool:
        return entry.offset < self.offset and bool(
            selected(_OneEntry(entry), self.event, self.occurred_at_ns)
        )


@dataclass(slots=True)
class Held:
    """What all overlays of a worker hold together."""

    held_bytes: int = 0


class Overlay:
    """Own stores and invalidations between their LSN and the fold's.

    At most `limit_bytes` of entries; the oldest go first, and are misses until the
    store shows them.
    """

    def __init__(self, limit_bytes: int, held: Held | None = None) -> None:
        """With `held` the limit is that of all overlays that share it."""
        self._limit_bytes = limit_bytes
        self._held = held or Held()
        self._entries: dict[ExactKey, _Waiting] = {}
        self._hiding: list[_Hiding] = []

    @property
    def held_bytes(self) -> int:
        """Return what this overlay, and those it shares its limit with, hold."""
        return self._held.held_bytes

    @property
    def empty(self) -> bool:
        """Return whether the store shows all there was."""
        return not self._entries and not self._hiding

    def add(self, envelope: Envelope, lsn: Lsn, state: NamespaceState) -> None:
        """Show the effect of one acknowledged event on top of `state`.

        The fold itself decides it, so what is fenced there is not shown here.
        """
        body = envelope.body
        if isinstance(body, Invalidated):
            hiding = _Hiding(lsn.offset, body, envelope.occurred_at_ns)
            self._hiding.append(hiding)
            self._drop(
                key for key, found in self._entries.items() if hiding.hides(found.entry)
            )
            return
        step = apply(state, _OneEntry(), envelope, lsn)
        for key, entry in step.entries.items():
            if entry is not None and not any(h.hides(entry) for h in self._hiding):
                self._put(key, _Waiting(lsn.offset, entry, entry_bytes.encode(entry)))

    def raw_entry(self, key: ExactKey) -> bytes | None:
        """Return the bytes of an entry that waits for the fold."""
        found = self._entries.get(key)
        return None if found is None else found.raw

    def hides(self, raw: bytes) -> bool:
        """Return whether an invalidation that waits for the fold removes this entry.

        Raises: `CorruptState`.
        """
        if not self._hiding:
            return False
        entry = entry_bytes.decode(raw)
        return any(hiding.hides(entry) for hiding in self._hiding)

    def prune(self, applied: Offset) -> None:
        """Forget what the store shows now."""
        if not self._entries and not self._hiding:
            return
        self._hiding = [each for each in self._hiding if each.offset > applied]
        self._drop(key for key, at in self._entries.items() if at.offset <= applied)

    def rebase(self, timeline: Timeline) -> None:
        """Forget what was decided on another timeline: the fold takes none of it."""
        if any(at.entry.timeline != timeline for at in self._entries.values()):
            self._drop(
                key
                for key, at in self._entries.items()
                if at.entry.timeline != timeline
            )

    def _put(self, key: ExactKey, waiting: _Waiting) -> None:
        older = self._entries.get(key)
        if older is not None and older.offset > waiting.offset:
            return
        self._drop([key])
        if waiting.cost_bytes > self._limit_bytes:
            return
        self._entries[key] = waiting
        self._held.held_bytes += waiting.cost_bytes
        while self._held.held_bytes > self._limit_bytes and self._entries:
            self._drop([next(iter(self._entries))])

    def _drop(self, keys: Iterable[ExactKey]) -> None:
        for key in list(keys):
            gone = self._entries.pop(key, None)
            if gone is not None:
                self._held.held_bytes -= gone.cost_bytes
