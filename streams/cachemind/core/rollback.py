"""Going back to a version: which keys, from which base, along which events.

A version's entries are those of its parent, changed at the keys that it touched; a
rollback's entries are its target's. So head and target can differ only at keys that a
version on the way from their common ancestor to either of them has touched, and an
entry as of a version follows from an older copy of it and the touching events.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from cachemind.core.decisions import changes_of
from cachemind.core.fold import kind_of
from cachemind.core.replayed import Aside, InMemory, Replayed
from cachemind.core.rollback_report import NO_BASE
from cachemind.core.state import Entry, EntryReader, Hits, NamespaceState, VersionRow
from cachemind.core.timeline import History, Span
from cachemind.errors import RollbackRejected
from cachemind.events import Envelope
from cachemind.types import EMPTY, ExactKey, Lsn, Namespace, Offset, Version

Keys = AbstractSet[ExactKey] | None
"""The keys that somebody asks about; None for all there are."""

CONTENT_KINDS: Final = frozenset(
    {"stored", "evicted", "invalidated", "pinned", "feedback"}
)
"""Kinds of events that change entries. A rollback's effect is its place in history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The way from `head` over the common `ancestor` to `target`."""

    head: Version
    target: Version
    ancestor: Version
    away: tuple[Span, ...]
    back: tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A kept state of one namespace to begin from: a checkpoint at `offset`."""

    offset: Offset
    version: Version
    digest: int


LOG_START: Final = Base(offset=NO_BASE, version=EMPTY, digest=0)
"""The empty state before the first event."""


def plan(history: History, target: Version) -> Plan:
    """Return how to go from the head to `target`. Raises: `UnknownVersion`."""
    ancestor = history.common_ancestor(history.head, target)
    return Plan(
        head=history.head,
        target=target,
        ancestor=ancestor,
        away=history.path(ancestor, history.head),
        back=history.path(ancestor, target),
    )


def bases(history: History, target: Version, kept: Iterable[Base]) -> Sequence[Base]:
    """Return what `target` can be rebuilt from, the nearest first.

    Raises: `UnknownVersion`.
    """
    on_lineage = [
        base
        for base in kept
        if base.version <= target
        and base.version <= history.head
        and not history.is_voided(base.version, target)
    ]
    nearest = sorted(on_lineage, key=lambda base: (base.version, base.offset))
    return (*reversed(nearest), LOG_START)


class Past:
    """An `EntryReader` of a version's entries, rebuilt from those of an older one.

    `follow` takes the events in order. With `keys`, only those are rebuilt; whatever
    happened to others is left out. Holds what the events changed, not the base, and
    of that only so much as `Replayed` does.
    """

    def __init__(
        self,
        namespace: Namespace,
        base: EntryReader,
        keys: Keys,
        aside: Aside | None = None,
    ) -> None:
        """Without `aside` all that the events changed is held."""
        self._namespace = namespace
        self._keys = keys
        self._changed = Replayed(base, aside or InMemory())
        self.replayed = 0

    @property
    def is_asked(self) -> bool:
        """Return whether there is a key that somebody asks about."""
        return self._keys is None or bool(self._keys)

    def concerned(self, touched: Iterable[ExactKey]) -> frozenset[ExactKey]:
        """Return those of `touched` that are asked about."""
        found = frozenset(touched)
        return found if self._keys is None else found & self._keys

    def follow(
        self,
        row: VersionRow,
        touched: Collection[ExactKey],
        envelope: Envelope,
        lsn: Lsn,
    ) -> None:
        """Fold in the event that made version `row`: `envelope`, found at `lsn`.

        `touched` are the keys that it changed, of those asked about.
        Raises: `RollbackRejected` where the event is not the one that history knows,
        or does not do what it did.
        """
        _require_same(row, self._namespace, envelope, lsn)
        state = NamespaceState(
            namespace=self._namespace,
            version=Version(row.version - 1),
            timeline=row.timeline,
        )
        only = _Only(self._changed, touched)
        changes = changes_of(state, only, envelope, lsn)
        if not changes or changes.keys() != set(touched):
            raise RollbackRejected(f"version {row.version} changes other keys now")
        self._changed.put(changes)
        self.replayed += 1

    def entry(self, key: ExactKey) -> Entry | None:
        """Return the entry at `key`, None where absent."""
        return self._changed.entry(key)

    def hits(self, key: ExactKey) -> Hits | None:
        """Return None: hits are outside of versions."""
        del key
        return None

    def entries(self) -> Iterable[Entry]:
        """Return every entry, in key order: all of them only where all were asked."""
        return self._changed.entries()


class NoEntries:
    """An `EntryReader` of the empty namespace."""

    def entry(self, key: ExactKey) -> Entry | None:
        """Return None."""
        del key
        return None

    def hits(self, key: ExactKey) -> Hits | None:
        """Return None."""
        del key
        return None

    def entries(self) -> Iterable[Entry]:
        """Return nothing."""
        return ()


class _Only:
    """An `EntryReader` that knows some keys, and so never scans a whole namespace."""

    def __init__(self, base: Replayed, keys: Collection[ExactKey]) -> None:
        self._base = base
        self._keys = frozenset(keys)

    def entry(self, key: ExactKey) -> Entry | None:
        return self._base.entry(key) if key in self._keys else None

    def hits(self, key: ExactKey) -> Hits | None:
        del key
        return None

    def entries(self) -> Iterable[Entry]:
        found = map(self._base.entry, sorted(self._keys))
        return (entry for entry in found if entry is not None)


def _require_same(
    row: VersionRow, namespace: Namespace, envelope: Envelope, lsn: Lsn
) -> None:
    expected = (namespace, row.event_id, row.kind, row.offset)
    found = (
        envelope.namespace,
        envelope.event_id,
        kind_of(envelope.body),
        lsn.offset,
    )
    if found != expected:
        raise RollbackRejected(f"another event than that of version {row.version}")
