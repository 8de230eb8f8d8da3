"""The state that the log folds into, as values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from cachemind.core.requested import Remembered
from cachemind.core.rollback_report import RollbackReport
from cachemind.types import (
    EMPTY,
    FIRST_TIMELINE,
    ContextKey,
    EncoderId,
    EventId,
    ExactKey,
    Namespace,
    Offset,
    Sha256,
    Timeline,
    Version,
)

HIT_HISTORY = 4
"""Last hits kept an entry, enough for LRU-K with K up to 4."""

_ENTRY_BYTES: Final = 2_048
"""Of an entry's object with its 20 small fields, beside prompt, vector and response."""


class Encodable:
    """Room beside a frozen value for its bytes, so that they are made once.

    No part of the value: a field changed by `replace` gives a value without them.
    """

    __slots__ = ("_encoded",)

    _encoded: bytes

    @property
    def encoded(self) -> bytes | None:
        """Return the bytes of this value, None where nobody has told them yet."""
        return getattr(self, "_encoded", None)

    def tell_encoded(self, raw: bytes) -> None:
        """Remember that `raw` are the bytes of this value."""
        object.__setattr__(self, "_encoded", raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Encodable):
    """A servable response and where it came from.

    `offset` and `version` are those of its `Stored`; times are nanoseconds of
    event time. `right` and `wrong` count feedback.
    """

    exact_key: ExactKey
    context_key: ContextKey
    event_id: EventId
    offset: Offset
    version: Version
    timeline: Timeline
    stored_at_ns: int
    expires_at_ns: int
    pinned: bool
    right: int
    wrong: int
    prompt_hash: Sha256
    request_hash: Sha256
    response_hash: Sha256
    snapshot_id: str
    semantic_key: str
    encoder_id: EncoderId
    model: str
    parameters: str
    finish_reason: str
    tags: tuple[str, ...]
    source_chunks: tuple[Sha256, ...]
    prompt: str | None
    embedding: bytes | None
    response: bytes

    @property
    def held_bytes(self) -> int:
        """Return about how many bytes the entry takes in memory."""
        text = len(self.response) + len(self.prompt or "") + len(self.embedding or b"")
        return _ENTRY_BYTES + 2 * text  # in its fields and in its bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """How often and when an entry was served; outside of versions and digest.

    `last_ns` holds the newest `HIT_HISTORY` hits, newest first.
    """

    count: int
    last_ns: tuple[int, ...]


Totals = tuple[int, int, int]
"""Digest, number and bytes of all entries of a namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceState:
    """What is true of a namespace besides its entries.

    `digest` is the additive digest over all entries, an integer modulo 2**256.
    `counts` maps a word (`hit_exact`, `stored`, `fenced`, ...) to events seen.
    """

    namespace: Namespace
    version: Version = EMPTY
    timeline: Timeline = FIRST_TIMELINE
    digest: int = 0
    entries: int = 0
    entry_bytes: int = 0
    policy: str = ""
    shredded_keys: tuple[str, ...] = ()
    last_rollback: EventId | None = None
    counts: dict[str, int] = field(default_factory=dict)

    def advanced(
        self, version: Version, counts: dict[str, int], totals: Totals
    ) -> NamespaceState:
        """Return this state as of `version`, with other counts and totals.

        Spelled out: each event makes such a state, and `replace` costs three times it.
        """
        digest, entries, entry_bytes = totals
        return NamespaceState(
            namespace=self.namespace,
            version=version,
            timeline=self.timeline,
            digest=digest,
            entries=entries,
            entry_bytes=entry_bytes,
            policy=self.policy,
            shredded_keys=self.shredded_keys,
            last_rollback=self.last_rollback,
            counts=counts,
        )

    @property
    def totals(self) -> Totals:
        """Return digest, number and bytes of the entries."""
        return self.digest, self.entries, self.entry_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRow:
    """One line of a namespace's history: the event that made `version`.

    `digest` and `entries` are the namespace's with that version. `target` and
    `rollback_id` are a rollback's, None for other kinds. `reason` is the beginning of
    what a rollback, an invalidation, an eviction or a shredded key gave as one, else
    empty.
    """

    version: Version
    offset: Offset
    timeline: Timeline
    digest: int
    entries: int
    event_id: EventId
    kind: str
    occurred_at_ns: int
    principal: str
    target: Version | None
    rollback_id: EventId | None
    reason: str


class Effect(StrEnum):
    """What an event did to its namespace."""

    APPLIED = "applied"
    NO_CHANGE = "no_change"
    FENCED = "fenced"
    COUNTED = "counted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The result of folding one event.

    `entries` maps each changed key to its new entry, None for gone.
    `removed_contexts` names the context that a key left: of every removed entry, and
    of a replaced one that moved or lost its vector. `hits` never names a key that
    `entries` removes. `report` tells of a rollback that this event was. `placed` are
    the keys of further changes, which are in the store's copy already (`ShadowStore`).
    `request` is what this event was the first of.
    """

    effect: Effect
    state: NamespaceState
    entries: dict[ExactKey, Entry | None]
    hits: dict[ExactKey, Hits]
    version_row: VersionRow | None
    removed_contexts: dict[ExactKey, ContextKey]
    report: RollbackReport | None = None
    placed: Sequence[ExactKey] = ()
    request: Remembered | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One journal line: an entry was stored (`present`) or went away."""

    namespace: Namespace
    context_key: ContextKey
    exact_key: ExactKey
    present: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextRow:
    """What the vector index needs of an entry. `embedding` is float16 bytes."""

    exact_key: ExactKey
    embedding: bytes
    expires_at_ns: int


class EntryReader(Protocol):
    """Read access to the entries of one namespace, as the fold needs it."""

    def entry(self, key: ExactKey) -> Entry | None:
        """Return the entry at `key`, None where absent."""
        ...

    def hits(self, key: ExactKey) -> Hits | None:
        """Return the hit history at `key`, None where it was never served."""
        ...

    def entries(self) -> Iterable[Entry]:
        """Return every entry of the namespace, in key order."""
        ...
