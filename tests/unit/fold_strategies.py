"""Logs whose events meet: few keys, few timelines, repeated event ids.

The events are lean on purpose: what a law depends on varies, the rest is fixed.
Full variety is in `tests.strategies`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from cachemind.events import (
    EXPIRED,
    Body,
    Envelope,
    Evicted,
    Feedback,
    Invalidated,
    KeyShredded,
    Outcome,
    Pinned,
    PolicyChanged,
    Reads,
    Refused,
    RolledBack,
    SelectorKind,
    SnapshotTaken,
    Stored,
    Verdict,
)
from cachemind.types import Namespace, TraceId, Version
from tests.fold_cases import (
    envelope,
    event_id,
    hash_of,
    key,
    lsn,
    read,
    reads,
    requested,
    stored,
)

NAMESPACES = (Namespace("a"), Namespace("ab"))
TRACE = TraceId(hash_of("trace")[:16])

words = st.sampled_from("pqr")
keys = words.map(key)
tags = st.sampled_from([(), ("red",), ("red", "blue")])
chunks = st.sampled_from([(), ("chunk",)])


def _stored() -> st.SearchStrategy[Stored]:
    return st.builds(
        stored,
        words,
        at_context=st.sampled_from("xy"),
        response=st.sampled_from(["one", "two"]),
        ttl_ms=st.sampled_from([1, 60_000, 2**63 - 1]),
        model=st.sampled_from(["m1", "m2"]),
        tags=tags,
        chunks=chunks,
        prompt=st.sampled_from(["alpha", "alphabet", "beta", None]),
        embedding=st.sampled_from([None, b"\x00\x3c", b"\x00\x3c\x00\x00"]),
    )


def _reads() -> st.SearchStrategy[Reads]:
    item = st.builds(
        read, words | st.none(), st.integers(0, 9), st.sampled_from(Outcome)
    )
    return st.lists(item, min_size=1, max_size=3).map(lambda items: reads(*items))


def _invalidated() -> st.SearchStrategy[Invalidated]:
    values = {
        SelectorKind.KEY: keys.map(bytes.hex),
        SelectorKind.PREFIX: st.sampled_from(["alpha", "b"]),
        SelectorKind.TAG: st.sampled_from(["red", "blue"]),
        SelectorKind.MODEL: st.sampled_from(["m1", "m2"]),
        SelectorKind.CHUNK: st.just(hash_of("chunk").hex()),
        SelectorKind.AGE: st.integers(0, 9).map(str),
        SelectorKind.ALL: st.just(""),
    }
    return st.sampled_from(SelectorKind).flatmap(
        lambda kind: st.builds(
            Invalidated, kind=st.just(kind), value=values[kind], reason=st.just("r")
        )
    )


def _rolled_back() -> st.SearchStrategy[RolledBack]:
    return st.builds(
        RolledBack,
        rollback_id=words.map(event_id),
        to_version=st.integers(0, 4).map(Version),
        expected_head=st.just(-1) | st.integers(0, 4),
        reason=st.just("r"),
    )


def _statements() -> st.SearchStrategy[Body]:
    refused = Refused(
        exact_key=key("p"), trace_id=TRACE, reason="stream-cut", upstream_status=200
    )
    taken = SnapshotTaken(
        snapshot_id="s",
        name="n",
        lsns=(lsn(0),),
        version=Version(0),
        digest=hash_of("d"),
    )
    return st.sampled_from(
        [
            refused,
            taken,
            PolicyChanged(policy="{}"),
            PolicyChanged(policy='{"a":1}'),
            KeyShredded(key_id="k", reason="r"),
        ]
    )


def bodies() -> st.SearchStrategy[Body]:
    """Half of them `Stored`, so that the others find something."""
    feedback = st.builds(
        Feedback,
        matched_key=keys,
        served_trace_id=st.just(TRACE),
        verdict=st.sampled_from(Verdict),
    )
    evicted = st.builds(
        Evicted,
        keys=st.lists(keys, min_size=1, max_size=3).map(tuple),
        reason=st.sampled_from(["lru-k", EXPIRED]),
    )
    pinned = st.builds(Pinned, exact_key=keys, pinned=st.booleans())
    others = (_reads(), _invalidated(), evicted, pinned, feedback)
    rare = st.one_of(_rolled_back(), _statements())
    return st.one_of(*[_stored()] * 5, *others, rare)


def _envelope(body: Body, word: str, request: str, **fields: Any) -> Envelope:
    made = envelope(body, word, **fields)
    if not request or isinstance(body, RolledBack):
        return made
    return replace(made, event_id=requested(request, word))


def envelopes() -> st.SearchStrategy[Envelope]:
    """Mostly on timeline 0, where a log without a rollback stays; some of requests."""
    return st.builds(
        _envelope,
        bodies(),
        st.integers(0, 15).map(str),
        st.sampled_from(["", "", "", "a", "b", "c"]),
        namespace=st.sampled_from([*[NAMESPACES[0]] * 3, NAMESPACES[1]]),
        timeline=st.sampled_from([0, 0, 0, 0, 0, 1, 2, 3, 4, 5]),
        at_ns=st.integers(0, 9).map(lambda ms: ms * 1_000_000),
    )


def logs(max_size: int = 20) -> st.SearchStrategy[list[Envelope]]:
    """Logs of one partition; the last of their sizes are as common as the first."""
    return st.integers(0, max_size).flatmap(
        lambda size: st.lists(envelopes(), min_size=size, max_size=size)
    )
