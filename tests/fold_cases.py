"""Events and folds in few words, for tests of fold and stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

from cachemind.core.requested import requested_id
from cachemind.core.state import Entry, EntryReader, Hits, NamespaceState
from cachemind.core.working_set import Loader, WorkingSet
from cachemind.events import (
    Body,
    Envelope,
    Evidence,
    Outcome,
    Read,
    Reads,
    RolledBack,
    Stored,
)
from cachemind.types import (
    ContextKey,
    EncoderId,
    EventId,
    ExactKey,
    Lsn,
    Namespace,
    Offset,
    Partition,
    Principal,
    Sha256,
    Timeline,
    TraceId,
    Version,
    WriterId,
)

NS = Namespace("shop")
T0_NS = 1_700_000_000_000_000_000
PARTITION = Partition(0)


def hash_of(word: str) -> Sha256:
    return Sha256(sha256(word.encode()).digest())


def key(word: str) -> ExactKey:
    return ExactKey(hash_of(f"exact {word}"))


def context(word: str) -> ContextKey:
    return ContextKey(hash_of(f"context {word}"))


def event_id(word: str) -> EventId:
    found = bytearray(hash_of(f"event {word}")[:16])
    found[6] = 0x70 | found[6] & 0x0F  # one that nobody asks for under an id
    return EventId(bytes(found))


def lsn(offset: int) -> Lsn:
    return Lsn(PARTITION, Offset(offset))


def stored(
    word: str,
    *,
    at_context: str = "c",
    response: str = "",
    ttl_ms: int = 60_000,
    model: str = "m",
    tags: tuple[str, ...] = (),
    chunks: tuple[str, ...] = (),
    prompt: str | None = "",
    embedding: bytes | None = b"\x00\x3c\x00\x00",
) -> Stored:
    """The prompt defaults to the key's word, the response to one made of it."""
    body = (response or f"answer to {word}").encode()
    return Stored(
        exact_key=key(word),
        context_key=context(at_context),
        prompt_hash=hash_of(f"prompt {word}"),
        request_hash=hash_of(f"request {word}"),
        semantic_key="c2VtYW50aWM=",
        embedding=embedding,
        encoder_id=EncoderId("enc-1"),
        model=model,
        parameters='{"temperature":0}',
        prompt=word if prompt == "" else prompt,
        response=body,
        response_hash=Sha256(sha256(body).digest()),
        finish_reason="stop",
        evidence=Evidence(
            rule="strong",
            upstream_status=200,
            streamed=False,
            entropy_nats=None,
            confidence_ratio=None,
        ),
        ttl_ms=ttl_ms,
        tags=tags,
        source_chunks=tuple(hash_of(chunk) for chunk in chunks),
        snapshot_id=hash_of(f"snapshot {word}")[:16].hex(),
    )


def read(
    word: str | None, at_ns: int = T0_NS, outcome: Outcome = Outcome.HIT_EXACT
) -> Read:
    """A look-up that matched `word`; None for one that matched nothing."""
    return Read(
        trace_id=TraceId(hash_of("trace")[:16]),
        principal=Principal("alice"),
        occurred_at_ns=at_ns,
        outcome=outcome,
        exact_key=key(word or "unmatched"),
        matched_key=None if word is None else key(word),
        similarity=None,
        strategy="exact",
        version_seen=Version(0),
        prompt_hash=hash_of("prompt"),
        response_hash=None,
        reason="",
    )


def reads(*items: Read) -> Reads:
    return Reads(items=items)


def rolled_back(
    to_version: int, word: str = "r", *, expected_head: int = -1, reason: str = "why"
) -> RolledBack:
    """The rollback id is made of the word."""
    return RolledBack(
        rollback_id=event_id(f"rollback {word}"),
        to_version=Version(to_version),
        expected_head=expected_head,
        reason=reason,
    )


def requested(request: str, content: str = "") -> EventId:
    """The id of an event that somebody asks for under an id of their own."""
    return requested_id(Principal("alice"), request.encode(), content.encode())


def envelope(
    body: Body,
    word: str = "e",
    *,
    namespace: Namespace = NS,
    timeline: int = 0,
    at_ns: int = T0_NS,
) -> Envelope:
    return Envelope(
        event_id=event_id(word),
        namespace=namespace,
        trace_id=TraceId(hash_of("trace")[:16]),
        principal=Principal("alice"),
        occurred_at_ns=at_ns,
        writer=WriterId("w"),
        writer_seq=0,
        timeline=Timeline(timeline),
        op_hash=hash_of("op"),
        body=body,
    )


class NoEntries:
    """An `EntryReader` of an empty namespace."""

    def entry(self, key: ExactKey) -> Entry | None:
        del key
        return None

    def hits(self, key: ExactKey) -> Hits | None:
        del key
        return None

    def entries(self) -> Iterable[Entry]:
        return ()


def nothing(namespace: Namespace) -> tuple[NamespaceState, EntryReader]:
    """A loader of empty namespaces."""
    return NamespaceState(namespace=namespace), NoEntries()


def folded(
    log: Iterable[Envelope], base: WorkingSet | None = None, first: int = 0
) -> WorkingSet:
    """Fold a log, its first event at offset `first`, over `base` or nothing."""
    work = WorkingSet(nothing)
    if base is not None:
        work = WorkingSet(loader_of(base), base.requests)
    for offset, event in enumerate(log, start=first):
        work.apply(event, lsn(offset))
    return work


def loader_of(work: WorkingSet) -> Loader:
    return lambda namespace: (work.state(namespace), work.reader(namespace))


Whole = Mapping[
    Namespace, tuple[NamespaceState, Sequence[Entry], Mapping[ExactKey, Hits]]
]


def whole(work: WorkingSet, namespaces: Iterable[Namespace]) -> Whole:
    """Everything the fold knows, to compare."""
    found = {}
    for namespace in namespaces:
        entries = list(work.reader(namespace).entries())
        hits = {
            entry.exact_key: history
            for entry in entries
            if (history := work.reader(namespace).hits(entry.exact_key)) is not None
        }
        found[namespace] = (work.state(namespace), entries, hits)
    return found
