"""The current schema written out for the events of every request.

Walking the schema for each field costs the general writer four times as much. What
these functions do not handle (another body, a value that does not fit) they give up
by returning None, and the general writer has the say, errors included. That both
agree, byte for byte, is a law in the tests; the codec uses them only for the schema
whose fingerprint is `SCHEMA`.
Source: Avro 1.12 specification, "Binary Encoding".
"""

from __future__ import annotations

import struct
from typing import Final

from cachemind.events import Envelope, Outcome, Read, Reads, Stored

SCHEMA: Final = bytes.fromhex("ee81e00424181df2")
"""CRC-64-AVRO, little-endian, of the schema written out here."""

SYMBOLS: Final = ("unrecognised", *[one.value for one in Outcome])
READS: Final = 0
STORED: Final = 1
"""Positions of the branches in the union of bodies."""

MAX_LONG: Final = 2**63 - 1
MAX_INT: Final = 2**31 - 1
_DOUBLE: Final = struct.Struct("<d")
_NULL: Final = b"\x00"
_PRESENT: Final = b"\x02"
_END: Final = b"\x00"
_SMALL: Final = tuple(bytes([2 * value]) for value in range(64))
_OUTCOMES: Final = {one: _SMALL[SYMBOLS.index(one)] for one in Outcome}
_BOOLEANS: Final = {False: b"\x00", True: b"\x01"}
_UNFIT: Final = (AttributeError, KeyError, TypeError, ValueError, struct.error)


def write(header: bytes, event: Envelope) -> bytes | None:
    """Return the record's bytes, or None where the general writer must do it."""
    body = event.body
    try:
        if isinstance(body, Reads):
            parts = _envelope(header, event, READS)
            parts.append(_long(len(body.items)))
            for read in body.items:
                parts += _read(read)
            parts.append(_END)
        elif isinstance(body, Stored):
            parts = _envelope(header, event, STORED)
            parts += _stored(body)
        else:
            return None
        return b"".join(parts)
    except _UNFIT:
        return None


def _envelope(header: bytes, event: Envelope, branch: int) -> list[bytes]:
    return [
        header,
        event.event_id,
        event.trace_id,
        event.op_hash,
        _long(event.occurred_at_ns),
        _long(event.timeline),
        _long(event.writer_seq),
        _text(event.namespace),
        _text(event.principal),
        _text(event.writer),
        _SMALL[branch],
    ]


def _read(read: Read) -> tuple[bytes, ...]:
    matched, similarity, response = (
        read.matched_key,
        read.similarity,
        read.response_hash,
    )
    return (
        read.trace_id,
        read.exact_key,
        read.prompt_hash,
        _long(read.occurred_at_ns),
        _long(read.version_seen),
        _OUTCOMES[read.outcome],
        _NULL if matched is None else _PRESENT + matched,
        _NULL if similarity is None else _PRESENT + _DOUBLE.pack(similarity),
        _NULL if response is None else _PRESENT + response,
        _text(read.strategy),
        _text(read.reason),
        _text(read.principal),
    )


def _stored(stored: Stored) -> list[bytes]:
    evidence = stored.evidence
    status = evidence.upstream_status
    if status > MAX_INT:
        raise ValueError("past Avro's int")
    return [
        stored.exact_key,
        stored.context_key,
        stored.prompt_hash,
        stored.request_hash,
        stored.response_hash,
        _long(stored.ttl_ms),
        _text(stored.snapshot_id),
        _text(stored.semantic_key),
        _text(stored.encoder_id),
        _text(stored.model),
        _text(stored.parameters),
        _text(stored.finish_reason),
        _long(status),
        _BOOLEANS[evidence.streamed],
        _optional_double(evidence.entropy_nats),
        _optional_double(evidence.confidence_ratio),
        _text(evidence.rule),
        *_array([_text(tag) for tag in stored.tags]),
        *_array(stored.source_chunks),
        _NULL if stored.prompt is None else _PRESENT + _text(stored.prompt),
        _NULL if stored.embedding is None else _PRESENT + _bytes(stored.embedding),
        _bytes(stored.response),
    ]


def _array(items: list[bytes] | tuple[bytes, ...]) -> list[bytes]:
    return [_long(len(items)), *items, _END] if items else [_END]


def _optional_double(value: float | None) -> bytes:
    return _NULL if value is None else _PRESENT + _DOUBLE.pack(value)


def _text(text: str) -> bytes:
    return _bytes(text.encode())


def _bytes(content: bytes) -> bytes:
    size = len(content)
    return (_SMALL[size] if size < len(_SMALL) else _long(size)) + content


def _long(value: int) -> bytes:
    if 0 <= value < len(_SMALL):
        return _SMALL[value]
    if not 0 <= value <= MAX_LONG:
        raise ValueError("below zero, or past Avro's long")
    left = 2 * value
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)
