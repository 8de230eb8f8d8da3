"""Logs whose events meet: few keys, few timelines, repeated event ids."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from cachemind.events import (
    Body,
    Envelope,
    Invalidated,
    Read,
    Reads,
    RolledBack,
    SelectorKind,
)
from cachemind.types import EventId, ExactKey, Namespace, Timeline, Version
from tests import strategies
from tests.fold_cases import context, event_id, hash_of, key

NAMESPACES = (Namespace("a"), Namespace("ab"))
_WORDS = "pqrst"

keys = st.sampled_from([key(word) for word in _WORDS])
contexts = st.sampled_from([context(word) for word in "xy"])
small_ids = st.sampled_from([event_id(str(number)) for number in range(6)])
event_ids = small_ids | strategies.event_ids
timelines = st.integers(0, 8).map(Timeline)
tags = st.sampled_from(["red", "blue"])
chunks = st.sampled_from([hash_of("chunk 1"), hash_of("chunk 2")])


def stored() -> st.SearchStrategy[Body]:
    return st.builds(
        replace,
        strategies.stored(keys, contexts),
        tags=st.lists(tags, max_size=2).map(tuple),
        source_chunks=st.lists(chunks, max_size=2).map(tuple),
        model=st.sampled_from(["m1", "m2"]),
        prompt=st.none() | st.sampled_from(["alpha", "alphabet", "beta"]),
    )


def read_batches() -> st.SearchStrategy[Reads]:
    matched: st.SearchStrategy[ExactKey | None] = st.none() | keys
    item: st.SearchStrategy[Read] = st.builds(
        replace, strategies.reads(), matched_key=matched
    )
    return st.builds(Reads, items=st.lists(item, min_size=1, max_size=4).map(tuple))


def invalidated() -> st.SearchStrategy[Invalidated]:
    values = {
        SelectorKind.KEY: keys.map(bytes.hex),
        SelectorKind.PREFIX: st.sampled_from(["alpha", "b"]),
        SelectorKind.TAG: tags,
        SelectorKind.MODEL: st.sampled_from(["m1", "m2"]),
        SelectorKind.CHUNK: chunks.map(bytes.hex),
        SelectorKind.AGE: st.integers(0, 10**13).map(str),
        SelectorKind.ALL: st.just(""),
    }
    return st.sampled_from(SelectorKind).flatmap(
        lambda kind: st.builds(
            Invalidated, kind=st.just(kind), value=values[kind], reason=st.just("r")
        )
    )


def rolled_back() -> st.SearchStrategy[RolledBack]:
    return st.builds(
        RolledBack,
        rollback_id=event_ids,
        to_version=st.integers(0, 6).map(Version),
        expected_head=st.integers(-1, 6),
        reason=st.just("r"),
    )


def bodies() -> st.SearchStrategy[Body]:
    return st.one_of(
        stored(),
        stored(),
        read_batches(),
        strategies.refused(),
        invalidated(),
        strategies.evicted(keys),
        strategies.pinned(keys),
        strategies.feedback(keys),
        rolled_back(),
        strategies.snapshots_taken(),
        st.builds(replace, strategies.policies_changed(), policy=st.just("{}")),
        st.builds(replace, strategies.keys_shredded(), key_id=st.just("k")),
    )


def envelopes(
    body: st.SearchStrategy[Body] | None = None,
) -> st.SearchStrategy[Envelope]:
    """Timeline 0 half of the time, so that most events count on a fresh log."""
    ids: st.SearchStrategy[EventId] = event_ids
    return st.builds(
        replace,
        strategies.envelopes(
            bodies() if body is None else body, st.sampled_from(NAMESPACES)
        ),
        event_id=ids,
        timeline=st.just(Timeline(0)) | timelines,
    )


def logs(max_size: int = 20) -> st.SearchStrategy[list[Envelope]]:
    return st.lists(envelopes(), max_size=max_size)
