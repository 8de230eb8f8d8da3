"""Writes events.json: every kind of event, its values and its bytes.

Run it from the repository's root: `python -m tests.vectors.make_events`. The values
are fixed, so it writes the same file each time. Bytes are given as hex. `confluent`
has the schema id 7.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final

from cachemind.codec import Codec
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
from cachemind_schemas.loader import current

TARGET: Final = Path(__file__).with_name("events.json")
SCHEMA_ID: Final = 7
_AT_NS: Final = 1_750_000_000_123_456_789


class FixedId:
    """A registry that knows one schema, under `SCHEMA_ID`."""

    def id_for(self, schema_text: str) -> int:
        """Return the id of whatever is asked for."""
        return SCHEMA_ID

    def schema_for(self, schema_id: int) -> str:
        """Return the current schema."""
        return current().text


def _hash(seed: int) -> Sha256:
    return Sha256(bytes((seed + step) % 256 for step in range(32)))


def _id(seed: int) -> bytes:
    return bytes((seed + step) % 256 for step in range(16))


_HIT: Final = Read(
    trace_id=TraceId(_id(0x21)),
    principal=Principal("alice"),
    occurred_at_ns=_AT_NS,
    outcome=Outcome.HIT_SEMANTIC,
    exact_key=ExactKey(_hash(0x30)),
    matched_key=ExactKey(_hash(0x50)),
    similarity=0.9375,
    strategy="semantic",
    version_seen=Version(127),
    prompt_hash=_hash(0x70),
    response_hash=_hash(0x90),
    reason="",
)
_MISS: Final = Read(
    trace_id=TraceId(_id(0x22)),
    principal=Principal("bjørn"),
    occurred_at_ns=_AT_NS + 1,
    outcome=Outcome.MISS,
    exact_key=ExactKey(_hash(0x31)),
    matched_key=None,
    similarity=None,
    strategy="exact",
    version_seen=Version(0),
    prompt_hash=_hash(0x71),
    response_hash=None,
    reason="guard-number",
)
_STORED: Final = Stored(
    exact_key=ExactKey(_hash(0x31)),
    context_key=ContextKey(_hash(0x32)),
    prompt_hash=_hash(0x71),
    request_hash=_hash(0x33),
    semantic_key="ADwAvAA4ALgANAC0ADAAsA==",
    embedding=bytes.fromhex("003c00bc003800b8003400b4003000b0"),
    encoder_id=EncoderId("all-MiniLM-L6-v2/onnx/1"),
    model="small-1",
    parameters='{"temperature":0.2}',
    prompt="wie heißt die Hauptstadt von Perú?",
    response='{"choices":[{"message":{"content":"Lima 🇵🇪"}}]}'.encode(),
    response_hash=_hash(0x91),
    finish_reason="stop",
    evidence=Evidence(
        rule="logprobs-strong",
        upstream_status=200,
        streamed=True,
        entropy_nats=0.25,
        confidence_ratio=0.9375,
    ),
    ttl_ms=604_800_000,
    tags=("geo", "demo"),
    source_chunks=(_hash(0xA0), _hash(0xA1)),
    snapshot_id="0123456789abcdef0123456789abcdef",
)
_STORED_BARE: Final = Stored(
    exact_key=ExactKey(_hash(0x31)),
    context_key=ContextKey(_hash(0x32)),
    prompt_hash=_hash(0x71),
    request_hash=_hash(0x33),
    semantic_key="",
    embedding=None,
    encoder_id=EncoderId(""),
    model="small-1",
    parameters="{}",
    prompt=None,
    response=b"{}",
    response_hash=_hash(0x92),
    finish_reason="tool_calls",
    evidence=Evidence(
        rule="no-logprobs",
        upstream_status=200,
        streamed=False,
        entropy_nats=None,
        confidence_ratio=None,
    ),
    ttl_ms=1,
    tags=(),
    source_chunks=(),
    snapshot_id="ffffffffffffffffffffffffffffffff",
)
BODIES: Final[dict[str, Body]] = {
    "reads-one-hit": Reads(items=(_HIT,)),
    "reads-one-miss": Reads(items=(_MISS,)),
    "reads-group-of-each-outcome": Reads(
        items=tuple(
            Read(
                trace_id=TraceId(_id(0x40 + step)),
                principal=Principal(""),
                occurred_at_ns=_AT_NS + step,
                outcome=outcome,
                exact_key=ExactKey(_hash(0x60 + step)),
                matched_key=None,
                similarity=-1.0,
                strategy="",
                version_seen=Version(63 + step),
                prompt_hash=_hash(0x80 + step),
                response_hash=_hash(0xB0 + step),
                reason="",
            )
            for step, outcome in enumerate(Outcome)
        )
    ),
    "stored-with-all": _STORED,
    "stored-with-least": _STORED_BARE,
    "refused": Refused(
        exact_key=ExactKey(_hash(0x31)),
        trace_id=TraceId(_id(0x22)),
        reason="upstream-status",
        upstream_status=503,
    ),
    **{
        f"invalidated-by-{kind.value}": Invalidated(
            kind=kind, value=value, reason="stale"
        )
        for kind, value in {
            SelectorKind.KEY: _hash(0x31).hex(),
            SelectorKind.PREFIX: "wie heißt",
            SelectorKind.TAG: "geo",
            SelectorKind.MODEL: "small-1",
            SelectorKind.CHUNK: _hash(0xA0).hex(),
            SelectorKind.AGE: "86400000",
            SelectorKind.ALL: "",
        }.items()
    },
    "evicted": Evicted(
        keys=(ExactKey(_hash(0x31)), ExactKey(_hash(0x32))), reason="lru-k"
    ),
    "pinned": Pinned(exact_key=ExactKey(_hash(0x31)), pinned=True),
    "unpinned": Pinned(exact_key=ExactKey(_hash(0x31)), pinned=False),
    "feedback-right": Feedback(
        matched_key=ExactKey(_hash(0x50)),
        served_trace_id=TraceId(_id(0x21)),
        verdict=Verdict.RIGHT,
    ),
    "feedback-wrong": Feedback(
        matched_key=ExactKey(_hash(0x50)),
        served_trace_id=TraceId(_id(0x21)),
        verdict=Verdict.WRONG,
    ),
    "rolled-back": RolledBack(
        rollback_id=EventId(_id(0xC0)),
        to_version=Version(127),
        expected_head=-1,
        reason="poisoned source",
    ),
    "snapshot-taken": SnapshotTaken(
        snapshot_id="2025-06-15T15-06-40Z",
        name="before the import",
        lsns=(
            Lsn(Partition(0), Offset(12_345)),
            Lsn(Partition(3), Offset(2**40)),
        ),
        version=Version(127),
        digest=_hash(0xD0),
    ),
    "policy-changed": PolicyChanged(policy='{"threshold":0.92}'),
    "key-shredded": KeyShredded(key_id="tenant-a/2", reason="erasure request"),
}


def envelope(body: Body, sequence: int) -> Envelope:
    """Return the event that carries `body` in the vectors."""
    return Envelope(
        event_id=EventId(_id(0x01)),
        namespace=Namespace("tenant-a"),
        trace_id=TraceId(_id(0x11)),
        principal=Principal("alice"),
        occurred_at_ns=_AT_NS,
        writer=WriterId("gateway-1/4711"),
        writer_seq=sequence,
        timeline=Timeline(64),
        op_hash=_hash(0xE0),
        body=body,
    )


def document() -> str:
    """Return the file's text."""
    plain, framed = Codec(), Codec(FixedId())
    schema = current()
    events = []
    for sequence, (name, body) in enumerate(BODIES.items()):
        event = envelope(body, sequence)
        events.append(
            {
                "name": name,
                "type": type(body).__name__,
                "event": _json(event),
                "single_object": plain.encode(event).hex(),
                "confluent": framed.encode(event).hex(),
            }
        )
    whole = {
        "schema_version": schema.version,
        "crc64_avro_little_endian": schema.crc64.hex(),
        "sha256": schema.sha256.hex(),
        "confluent_schema_id": SCHEMA_ID,
        "events": events,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if is_dataclass(value):
        return {part.name: _json(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, tuple):
        return [_json(part) for part in value]
    return value


if __name__ == "__main__":
    TARGET.write_text(document(), encoding="utf-8")
