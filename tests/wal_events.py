"""Small, valid events for tests that need many of them."""

from __future__ import annotations

from hashlib import sha256

from cachemind.core.identifiers import uuid7
from cachemind.events import (
    Body,
    Envelope,
    Evidence,
    Pinned,
    RolledBack,
    Stored,
)
from cachemind.types import (
    FIRST_TIMELINE,
    ContextKey,
    EncoderId,
    EventId,
    ExactKey,
    Namespace,
    Principal,
    Sha256,
    TraceId,
    Version,
    WriterId,
)

ALPHA = Namespace("alpha")
BEGAN_NS = 1_700_000_000_000_000_000


def hashed(text: str) -> Sha256:
    """Return 32 bytes that stand for `text`."""
    return Sha256(sha256(text.encode()).digest())


def exact_key(number: int) -> ExactKey:
    """Return the key that `stored(number)` stores at."""
    return ExactKey(hashed(f"exact {number}"))


def stored(number: int, response_bytes: int = 32) -> Stored:
    """Return a `Stored` of its own key; the same number gives the same event."""
    response = str(number).encode().ljust(response_bytes, b".")
    return Stored(
        exact_key=exact_key(number),
        context_key=ContextKey(hashed("context")),
        prompt_hash=hashed(f"prompt {number}"),
        request_hash=hashed(f"request {number}"),
        semantic_key="",
        embedding=None,
        encoder_id=EncoderId("none"),
        model="model",
        parameters="{}",
        prompt=f"prompt {number}",
        response=response,
        response_hash=Sha256(sha256(response).digest()),
        finish_reason="stop",
        evidence=Evidence(
            rule="test",
            upstream_status=200,
            streamed=False,
            entropy_nats=None,
            confidence_ratio=None,
        ),
        ttl_ms=3_600_000,
        tags=(),
        source_chunks=(),
        snapshot_id=sha256(str(number).encode()).hexdigest()[:32],
    )


def pinned(number: int) -> Pinned:
    """Return a `Pinned` of the entry that `stored(number)` made."""
    return Pinned(exact_key=exact_key(number), pinned=True)


def rolled_back(to_version: int) -> RolledBack:
    """Return a rollback to `to_version`."""
    return RolledBack(
        rollback_id=_event_id(10**6),
        to_version=Version(to_version),
        expected_head=-1,
        reason="test",
    )


def envelope(number: int, body: Body, namespace: Namespace = ALPHA) -> Envelope:
    """Return `body` as event `number` of its writer; ids follow from the number."""
    return Envelope(
        event_id=_event_id(number),
        namespace=namespace,
        trace_id=TraceId(hashed(f"trace {number}")[:16]),
        principal=Principal("tester"),
        occurred_at_ns=BEGAN_NS + number,
        writer=WriterId("test"),
        writer_seq=number,
        timeline=FIRST_TIMELINE,
        op_hash=hashed(f"op {number}"),
        body=body,
    )


def _event_id(number: int) -> EventId:
    return uuid7(BEGAN_NS + number * 1_000_000, number.to_bytes(10, "big"))
