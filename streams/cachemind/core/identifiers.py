"""Event ids, W3C trace context and snapshot ids, from bytes and times given."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NewType

from cachemind.events import SNAPSHOT_ID_CHARS
from cachemind.types import ID_BYTES, EventId, Sha256, TraceId

RANDOM_BYTES: Final = 10
SPAN_BYTES: Final = 8
NS_PER_MS: Final = 1_000_000

SpanId = NewType("SpanId", bytes)
"""W3C parent id, 8 raw bytes, not all zero."""

_SAMPLED: Final = 0x01
_TRACEPARENT: Final = re.compile(
    r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL
)


def uuid7(now_ns: int, random: bytes) -> EventId:
    """Return a UUIDv7 whose ids sort by millisecond.

    Units: `now_ns` since the Unix epoch (UTC). `random` is 10 bytes; 6 of their 80
    bits make room for version and variant.
    Raises: `ValueError` where the time is past 48 bits of milliseconds or `random`
    is not 10 bytes.
    Source: RFC 9562 section 5.7.
    """
    if len(random) != RANDOM_BYTES:
        raise ValueError(f"random must be {RANDOM_BYTES} bytes, got {len(random)}")
    now_ms = now_ns // NS_PER_MS
    if not 0 <= now_ms < 1 << 48:
        raise ValueError(f"now_ns must be within 48 bits of ms, got {now_ns}")
    version = 0x70 | random[0] & 0x0F
    variant = 0x80 | random[2] & 0x3F
    head = now_ms.to_bytes(6, "big") + bytes((version, random[1], variant))
    return EventId(head + random[3:])


@dataclass(frozen=True, slots=True)
class TraceContext:
    """What a `traceparent` header says: trace, caller's span, sampled or not."""

    trace_id: TraceId
    parent_id: SpanId
    sampled: bool


def parse_trace_context(header: str) -> TraceContext | None:
    """Return the trace context in `header`, None where it is invalid.

    A version above 00 is read as far as version 00 goes, as the standard asks.
    Source: W3C Trace Context, sections 3.2 and 3.2.4.
    """
    match = _TRACEPARENT.fullmatch(header)
    if match is None:
        return None
    version, trace, parent, flags, rest = match.groups()
    if version == "ff" or (version == "00" and rest is not None):
        return None
    trace_id, parent_id = bytes.fromhex(trace), bytes.fromhex(parent)
    if not any(trace_id) or not any(parent_id):
        return None
    sampled = bool(int(flags, 16) & _SAMPLED)
    return TraceContext(TraceId(trace_id), SpanId(parent_id), sampled)


def parse_traceparent(header: str) -> TraceId | None:
    """Return the trace id in a `traceparent` header, None where it is invalid."""
    context = parse_trace_context(header)
    return None if context is None else context.trace_id


def format_traceparent(trace: TraceId, span: bytes, *, sampled: bool = False) -> str:
    """Return a version 00 `traceparent` header.

    Raises: `ValueError` where an id has a wrong length or is all zero: a receiver
    would have to drop it.
    Source: W3C Trace Context, section 3.2.2.
    """
    if len(trace) != ID_BYTES or not any(trace):
        raise ValueError(f"trace must be {ID_BYTES} bytes, not all zero")
    if len(span) != SPAN_BYTES or not any(span):
        raise ValueError(f"span must be {SPAN_BYTES} bytes, not all zero")
    return f"00-{trace.hex()}-{span.hex()}-{int(sampled):02x}"


def snapshot_id(salt: bytes, timestamp_ns: int, request_hash: Sha256) -> str:
    """Return the lineage id: SHA-256(salt + timestamp + request hash), 32 hex.

    Only the salt varies in length, so the concatenation is not ambiguous.

    Units: `timestamp_ns` since the Unix epoch (UTC), as 8 bytes big-endian. The
    first 16 bytes of the hash are kept.
    """
    moment = timestamp_ns.to_bytes(8, "big")
    return sha256(salt + moment + request_hash).hexdigest()[:SNAPSHOT_ID_CHARS]
