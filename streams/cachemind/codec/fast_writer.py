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

from cachemind.codec.primitives import (
    END,
    MAX_INT,
    NULL,
    PRESENT,
    SMALL,
    array,
    content,
    natural,
    text,
)
from cachemind.events import Envelope, Outcome, Read, Reads, Stored

SCHEMA: Final = bytes.fromhex("ee81e00424181df2")
"""CRC-64-AVRO, little-endian, of the schema written out here."""

SYMBOLS: Final = ("unrecognised", *[one.value for one in Outcome])
READS: Final = 0
STORED: Final = 1
"""Positions of the branches in the union of bodies."""

_DOUBLE: Final = struct.Struct("<d")
_OUTCOMES: Final = {one: SMALL[SYMBOLS.index(one)] for one in Outcome}
_BOOLEANS: Final = {False: b"\x00", True: b"\x01"}
_UNFIT: Final = (AttributeError, KeyError, TypeError, ValueError, struct.error)


def write(header: bytes, event: Envelope) -> bytes | None:
    """Return the record's bytes, or None where the general writer must do it."""
    body = event.body
    try:
        if isinstance(body, Reads):
            parts = _envelope(header, event, READS)
            parts.append(natural(len(body.items)))
            for read in body.items:
                parts += _read(read)
            parts.append(END)
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
        natural(event.occurred_at_ns),
        natural(event.timeline),
        natural(event.writer_seq),
        text(event.namespace),
        text(event.principal),
        text(event.writer),
        SMALL[branch],
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
        natural(read.occurred_at_ns),
        natural(read.version_seen),
        _OUTCOMES[read.outcome],
        NULL if matched is None else PRESENT + matched,
        NULL if similarity is None else PRESENT + _DOUBLE.pack(similarity),
        NULL if response is None else PRESENT + response,
        text(read.strategy),
        text(read.reason),
        text(read.principal),
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
        natural(stored.ttl_ms),
        text(stored.snapshot_id),
        text(stored.semantic_key),
        text(stored.encoder_id),
        text(stored.model),
        text(stored.parameters),
        text(stored.finish_reason),
        natural(status),
        _BOOLEANS[evidence.streamed],
        _optional_double(evidence.entropy_nats),
        _optional_double(evidence.confidence_ratio),
        text(evidence.rule),
        array([text(tag) for tag in stored.tags]),
        array(stored.source_chunks),
        NULL if stored.prompt is None else PRESENT + text(stored.prompt),
        NULL if stored.embedding is None else PRESENT + content(stored.embedding),
        content(stored.response),
    ]


def _optional_double(value: float | None) -> bytes:
    return NULL if value is None else PRESENT + _DOUBLE.pack(value)
