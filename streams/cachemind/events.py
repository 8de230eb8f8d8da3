"""What happened, as frozen values: one envelope, one body a kind of event.

Times are nanoseconds since the Unix epoch (UTC) by the writer's clock: a claim,
never an order. The order is the log's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cachemind.errors import InvalidEvent
from cachemind.types import (
    HASH_BYTES,
    ID_BYTES,
    ContextKey,
    EncoderId,
    EventId,
    ExactKey,
    Lsn,
    Namespace,
    Principal,
    Sha256,
    Timeline,
    TraceId,
    Version,
    WriterId,
    check_namespace,
)

SNAPSHOT_ID_CHARS: Final = 32
EXPIRED: Final = "expired"
"""Why an `Evicted` takes what has expired by its own time, and nothing else."""

_HEX: Final = frozenset("0123456789abcdef")
_SNAPSHOT_ID: Final = re.compile(f"[0-9a-f]{{{SNAPSHOT_ID_CHARS}}}")
_STORED_HASHES: Final = (
    "exact_key",
    "context_key",
    "prompt_hash",
    "request_hash",
    "response_hash",
)


class Outcome(StrEnum):
    """How a look-up ended."""

    HIT_EXACT = "hit_exact"
    HIT_SEMANTIC = "hit_semantic"
    HIT_CHUNK = "hit_chunk"
    MISS = "miss"
    BYPASS = "bypass"


class SelectorKind(StrEnum):
    """What an `Invalidated` selects by."""

    KEY = "key"
    PREFIX = "prefix"
    TAG = "tag"
    MODEL = "model"
    CHUNK = "chunk"
    AGE = "age"
    ALL = "all"


class Verdict(StrEnum):
    """What a user says of a served hit."""

    RIGHT = "right"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One look-up. `version_seen` is the namespace's version the reader had folded.

    `response_hash` is SHA-256 of the stored response that was served, on a hit.
    `reason` says why a bypass or miss was one (`no-store`, `guard-number`, ...);
    it never holds text from a request. `similarity` is a cosine, -1 to 1.
    """

    trace_id: TraceId
    principal: Principal
    occurred_at_ns: int
    outcome: Outcome
    exact_key: ExactKey
    matched_key: ExactKey | None
    similarity: float | None
    strategy: str
    version_seen: Version
    prompt_hash: Sha256
    response_hash: Sha256 | None
    reason: str

    def __post_init__(self) -> None:
        _size("trace_id", self.trace_id, ID_BYTES)
        _size("exact_key", self.exact_key, HASH_BYTES)
        _size("prompt_hash", self.prompt_hash, HASH_BYTES)
        if self.matched_key is not None:
            _size("matched_key", self.matched_key, HASH_BYTES)
        if self.response_hash is not None:
            _size("response_hash", self.response_hash, HASH_BYTES)
        _at_least("occurred_at_ns", self.occurred_at_ns, 0)
        _at_least("version_seen", self.version_seen, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """The look-ups that one group commit carries, oldest first; never empty."""

    items: tuple[Read, ...]

    def __post_init__(self) -> None:
        if not self.items:
            raise InvalidEvent("items", "a Reads record carries at least one read")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Why a response was admitted.

    `rule` names the admission rule. `entropy_nats` is the mean token entropy and
    `confidence_ratio` the mean token probability, where upstream gave logprobs.
    """

    rule: str
    upstream_status: int
    streamed: bool
    entropy_nats: float | None
    confidence_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A complete response became servable.

    `response` is the whole chat completion as canonical JSON (tool calls,
    reasoning and usage included), `response_hash` SHA-256 of those bytes.
    `embedding` is float16 little-endian, normalised, of `prompt` (the normalised
    last user turn) under `encoder_id`; None where the prompt is not plain text or
    is past the encoder's window. `parameters` is canonical JSON. `ttl_ms` counts
    from the envelope's `occurred_at_ns`. `request_hash` is SHA-256 of the
    canonical request. `snapshot_id` = SHA-256(salt + timestamp + request hash) as
    32 hex characters: the lineage id of this response.
    """

    exact_key: ExactKey
    context_key: ContextKey
    prompt_hash: Sha256
    request_hash: Sha256
    semantic_key: str
    embedding: bytes | None
    encoder_id: EncoderId
    model: str
    parameters: str
    prompt: str | None
    response: bytes
    response_hash: Sha256
    finish_reason: str
    evidence: Evidence
    ttl_ms: int
    tags: tuple[str, ...]
    source_chunks: tuple[Sha256, ...]
    snapshot_id: str

    def __post_init__(self) -> None:
        # Millions of these are read again in a replay: one comparison where all fit.
        if not (
            len(self.exact_key)
            == len(self.context_key)
            == len(self.prompt_hash)
            == len(self.request_hash)
            == len(self.response_hash)
            == HASH_BYTES
        ):
            for name in _STORED_HASHES:
                _size(name, getattr(self, name), HASH_BYTES)
        _at_least("ttl_ms", self.ttl_ms, 1)
        if not self.response:
            raise InvalidEvent("response", "must not be empty")
        if self.embedding is not None and (
            not self.embedding or len(self.embedding) % 2
        ):
            raise InvalidEvent("embedding", "must be float16 values, two bytes each")
        for chunk in self.source_chunks:
            _size("source_chunks", chunk, HASH_BYTES)
        if not _SNAPSHOT_ID.fullmatch(self.snapshot_id):
            raise InvalidEvent("snapshot_id", "must be 32 lower-case hex characters")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A complete or broken response was not admitted, and why.

    `reason` is a fixed word (`upstream-status`, `stream-cut`, `client-gone`,
    `too-large`, ...). `upstream_status` is 0 where there was no answer.
    """

    exact_key: ExactKey
    trace_id: TraceId
    reason: str
    upstream_status: int

    def __post_init__(self) -> None:
        _size("exact_key", self.exact_key, HASH_BYTES)
        _size("trace_id", self.trace_id, ID_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invalidated:
    """Entries must no longer be served. Takes effect on every timeline.

    `value` by kind: key, chunk: 64 hex characters; prefix: the beginning of the
    normalised prompt; tag, model: the exact text; age: entries stored that many
    milliseconds before this event, or earlier; all: empty.
    """

    kind: SelectorKind
    value: str
    reason: str

    def __post_init__(self) -> None:
        if self.kind in (SelectorKind.KEY, SelectorKind.CHUNK):
            if len(self.value) != 2 * HASH_BYTES or not _HEX.issuperset(self.value):
                raise InvalidEvent("value", f"{self.kind} takes 64 hex characters")
        elif self.kind is SelectorKind.AGE:
            if not (self.value.isascii() and self.value.isdigit()):
                raise InvalidEvent("value", "age takes whole milliseconds")
        elif (self.kind is SelectorKind.ALL) != (not self.value):
            raise InvalidEvent("value", "empty for all, and only for all")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicted:
    """The collector gave up entries; `reason` is its rule (`EXPIRED`, `lru-k`)."""

    keys: tuple[ExactKey, ...]
    reason: str

    def __post_init__(self) -> None:
        if not self.keys:
            raise InvalidEvent("keys", "an eviction names at least one key")
        for key in self.keys:
            _size("keys", key, HASH_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """An entry is kept from eviction (`pinned`), or no longer."""

    exact_key: ExactKey
    pinned: bool

    def __post_init__(self) -> None:
        _size("exact_key", self.exact_key, HASH_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """Somebody judged a served hit; `served_trace_id` is the trace it went out on."""

    matched_key: ExactKey
    served_trace_id: TraceId
    verdict: Verdict

    def __post_init__(self) -> None:
        _size("matched_key", self.matched_key, HASH_BYTES)
        _size("served_trace_id", self.served_trace_id, ID_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledBack:
    """The namespace's state becomes that of `to_version`, on a new timeline.

    `expected_head` is the version the operator saw; -1 where none was given.
    """

    rollback_id: EventId
    to_version: Version
    expected_head: int
    reason: str

    def __post_init__(self) -> None:
        _size("rollback_id", self.rollback_id, ID_BYTES)
        _at_least("to_version", self.to_version, 0)
        _at_least("expected_head", self.expected_head, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotTaken:
    """A snapshot covers this namespace: its version, digest and the LSNs."""

    snapshot_id: str
    name: str
    lsns: tuple[Lsn, ...]
    version: Version
    digest: Sha256

    def __post_init__(self) -> None:
        _at_least("version", self.version, 0)
        _size("digest", self.digest, HASH_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChanged:
    """The namespace's policy is now `policy` (canonical JSON)."""

    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyShredded:
    """A namespace data key was destroyed: what it wrapped can never be read again."""

    key_id: str
    reason: str


Body = (
    Reads
    | Stored
    | Refused
    | Invalidated
    | Evicted
    | Pinned
    | Feedback
    | RolledBack
    | SnapshotTaken
    | PolicyChanged
    | KeyShredded
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """One event of one namespace, as it is on the WAL.

    `writer_seq` counts up by one for each event of one writer. `timeline` is the
    one the writer had folded when it decided. `op_hash` is `core.op_hash`'s.
    """

    event_id: EventId
    namespace: Namespace
    trace_id: TraceId
    principal: Principal
    occurred_at_ns: int
    writer: WriterId
    writer_seq: int
    timeline: Timeline
    op_hash: Sha256
    body: Body

    def __post_init__(self) -> None:
        if not len(self.event_id) == len(self.trace_id) == ID_BYTES:
            _size("event_id", self.event_id, ID_BYTES)
            _size("trace_id", self.trace_id, ID_BYTES)
        _size("op_hash", self.op_hash, HASH_BYTES)
        if self.occurred_at_ns < 0 or self.writer_seq < 0 or self.timeline < 0:
            _at_least("occurred_at_ns", self.occurred_at_ns, 0)
            _at_least("writer_seq", self.writer_seq, 0)
            _at_least("timeline", self.timeline, 0)
        check_namespace(self.namespace)


def _size(field: str, found: Sequence[int], expected: int) -> None:
    if len(found) != expected:
        raise InvalidEvent(field, f"must be {expected} bytes, found {len(found)}")


def _at_least(field: str, found: int, lowest: int) -> None:
    if found < lowest:
        raise InvalidEvent(field, f"must be at least {lowest}, found {found}")
