"""Hypothesis strategies for every event; each drawn value is a valid one."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import strategies as st

from cachemind.events import (
    Body,
    Envelope,
    Evicted,
    Evidence,
    Feedback,
    Invalidated,
    KeyShredded,
    Outcome,
    Pinned,
    PolicyChanged,
    Read,
    Reads,
    Refused,
    RolledBack,
    SelectorKind,
    SnapshotTaken,
    Stored,
    Verdict,
)
from cachemind.types import (
    HASH_BYTES,
    ID_BYTES,
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

T = TypeVar("T")
MAX_LONG = 2**63 - 1
MAX_INT = 2**31 - 1

hostile_numbers = st.sampled_from(
    [b"\xfe" + b"\xff" * 8 + b"\x01", b"\xff" * 9 + b"\x01", b"\x80" * 9, b"\x01"]
)
"""Avro's largest and smallest length, an unfinished one, and -1."""

counts = st.integers(0, MAX_LONG)
times_ns = counts
versions = counts.map(Version)
timelines = counts.map(Timeline)
statuses = st.integers(-MAX_INT - 1, MAX_INT)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
hex64 = st.text("0123456789abcdef", min_size=64, max_size=64)
hex32 = st.text("0123456789abcdef", min_size=32, max_size=32)
hashes = st.binary(min_size=HASH_BYTES, max_size=HASH_BYTES).map(Sha256)
exact_keys = hashes.map(ExactKey)
context_keys = hashes.map(ContextKey)
ids = st.binary(min_size=ID_BYTES, max_size=ID_BYTES)
event_ids = ids.map(EventId)
trace_ids = ids.map(TraceId)
namespaces = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,127}", fullmatch=True).map(Namespace)
principals = texts.map(Principal)
ratios = st.floats(-1, 1)
finite = st.floats(allow_nan=False, allow_infinity=False)


def _some(values: st.SearchStrategy[T]) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(values, max_size=4).map(tuple)


def reads() -> st.SearchStrategy[Read]:
    """One look-up (the items of a `Reads`)."""
    return st.builds(
        Read,
        trace_id=trace_ids,
        principal=principals,
        occurred_at_ns=times_ns,
        outcome=st.sampled_from(Outcome),
        exact_key=exact_keys,
        matched_key=st.none() | exact_keys,
        similarity=st.none() | ratios,
        strategy=texts,
        version_seen=versions,
        prompt_hash=hashes,
        response_hash=st.none() | hashes,
        reason=texts,
    )


def read_batches(max_size: int = 4) -> st.SearchStrategy[Reads]:
    """One group commit's look-ups."""
    items = st.lists(reads(), min_size=1, max_size=max_size).map(tuple)
    return st.builds(Reads, items=items)


def evidences() -> st.SearchStrategy[Evidence]:
    return st.builds(
        Evidence,
        rule=texts,
        upstream_status=statuses,
        streamed=st.booleans(),
        entropy_nats=st.none() | finite,
        confidence_ratio=st.none() | finite,
    )


def stored(
    keys: st.SearchStrategy[ExactKey] = exact_keys,
    contexts: st.SearchStrategy[ContextKey] = context_keys,
) -> st.SearchStrategy[Stored]:
    """`keys` and `contexts` narrow the choice, so that events meet."""
    embeddings = st.integers(1, 8).flatmap(
        lambda n: st.binary(min_size=2 * n, max_size=2 * n)
    )
    return st.builds(
        Stored,
        exact_key=keys,
        context_key=contexts,
        prompt_hash=hashes,
        request_hash=hashes,
        semantic_key=texts,
        embedding=st.none() | embeddings,
        encoder_id=texts.map(EncoderId),
        model=texts,
        parameters=texts,
        prompt=st.none() | texts,
        response=st.binary(min_size=1, max_size=64),
        response_hash=hashes,
        finish_reason=texts,
        evidence=evidences(),
        ttl_ms=st.integers(1, MAX_LONG),
        tags=_some(texts),
        source_chunks=_some(hashes),
        snapshot_id=hex32,
    )


def refused() -> st.SearchStrategy[Refused]:
    return st.builds(
        Refused,
        exact_key=exact_keys,
        trace_id=trace_ids,
        reason=texts,
        upstream_status=statuses,
    )


def invalidated() -> st.SearchStrategy[Invalidated]:
    """Every kind of selector, with a value that fits it."""
    values = {
        SelectorKind.KEY: hex64,
        SelectorKind.CHUNK: hex64,
        SelectorKind.AGE: st.integers(0, 10**12).map(str),
        SelectorKind.ALL: st.just(""),
    }
    words = texts.filter(bool)
    return st.sampled_from(SelectorKind).flatmap(
        lambda kind: st.builds(
            Invalidated,
            kind=st.just(kind),
            value=values.get(kind, words),
            reason=texts,
        )
    )


def evicted(
    keys: st.SearchStrategy[ExactKey] = exact_keys,
) -> st.SearchStrategy[Evicted]:
    some = st.lists(keys, min_size=1, max_size=4).map(tuple)
    return st.builds(Evicted, keys=some, reason=texts)


def pinned(
    keys: st.SearchStrategy[ExactKey] = exact_keys,
) -> st.SearchStrategy[Pinned]:
    return st.builds(Pinned, exact_key=keys, pinned=st.booleans())


def feedback(
    keys: st.SearchStrategy[ExactKey] = exact_keys,
) -> st.SearchStrategy[Feedback]:
    return st.builds(
        Feedback,
        matched_key=keys,
        served_trace_id=trace_ids,
        verdict=st.sampled_from(Verdict),
    )


def rolled_back() -> st.SearchStrategy[RolledBack]:
    return st.builds(
        RolledBack,
        rollback_id=event_ids,
        to_version=versions,
        expected_head=st.integers(-1, MAX_LONG),
        reason=texts,
    )


def lsns() -> st.SearchStrategy[Lsn]:
    return st.builds(
        Lsn,
        partition=st.integers(0, MAX_INT).map(Partition),
        offset=counts.map(Offset),
    )


def snapshots_taken() -> st.SearchStrategy[SnapshotTaken]:
    return st.builds(
        SnapshotTaken,
        snapshot_id=texts,
        name=texts,
        lsns=_some(lsns()),
        version=versions,
        digest=hashes,
    )


def policies_changed() -> st.SearchStrategy[PolicyChanged]:
    return st.builds(PolicyChanged, policy=texts)


def keys_shredded() -> st.SearchStrategy[KeyShredded]:
    return st.builds(KeyShredded, key_id=texts, reason=texts)


def bodies() -> st.SearchStrategy[Body]:
    """Any body."""
    return st.one_of(
        read_batches(),
        stored(),
        refused(),
        invalidated(),
        evicted(),
        pinned(),
        feedback(),
        rolled_back(),
        snapshots_taken(),
        policies_changed(),
        keys_shredded(),
    )


def envelopes(
    body: st.SearchStrategy[Body] | None = None,
    namespace: st.SearchStrategy[Namespace] = namespaces,
) -> st.SearchStrategy[Envelope]:
    """Any event; `body` and `namespace` narrow the choice."""
    return st.builds(
        Envelope,
        event_id=event_ids,
        namespace=namespace,
        trace_id=trace_ids,
        principal=principals,
        occurred_at_ns=times_ns,
        writer=texts.map(WriterId),
        writer_seq=counts,
        timeline=timelines,
        op_hash=hashes,
        body=bodies() if body is None else body,
    )
