"""Reads what `fast_writer` writes, without walking the schema.

Gives up by returning None on everything else (another body, an unusual but legal
encoding, corruption): the general reader then has the say, errors included. What is
read here the general reader reads as the same event; that is a law in the tests.

Records are typed `Any`, so that a slice is an identifier without a call: a `NewType`
costs as much as the slice, ten times a record.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from cachemind.codec.fast_writer import READS, STORED, SYMBOLS
from cachemind.codec.primitives import (
    PRESENT,
    NotCanonical,
    Reader,
    read_array,
    read_content,
    read_hash,
    read_natural,
    read_optional_hash,
    read_text,
    read_texts,
    read_time,
)
from cachemind.errors import InvalidEvent
from cachemind.events import Body, Envelope, Evidence, Outcome, Read, Reads, Stored

_DOUBLE: Final = struct.Struct("<d")
_PRESENT: Final = PRESENT[0]
_BOOLEANS: Final = {0: False, 1: True}
_OUTCOMES: Final = {2 * SYMBOLS.index(one): one for one in Outcome}

_UNUSUAL: Final = (
    IndexError,
    KeyError,
    NotCanonical,
    UnicodeDecodeError,
    struct.error,
    InvalidEvent,
)


def read(record: Any, start: int) -> Envelope | None:
    """Return the event from `start` on, None where the general reader must look."""
    try:
        occurred_at_ns, at = read_time(record, start + 64)
        timeline, at = read_natural(record, at)
        writer_seq, at = read_natural(record, at)
        (namespace, principal, writer), at = read_texts(record, at, 3)
        body, at = _BODIES[record[at]](record, at + 1)
        if at != len(record):
            return None
        return Envelope(
            event_id=record[start : start + 16],
            namespace=namespace,
            trace_id=record[start + 16 : start + 32],
            principal=principal,
            occurred_at_ns=occurred_at_ns,
            writer=writer,
            writer_seq=writer_seq,
            timeline=timeline,
            op_hash=record[start + 32 : start + 64],
            body=body,
        )
    except _UNUSUAL:
        return None


def _reads(record: Any, at: int) -> tuple[Reads, int]:
    count, at = read_natural(record, at)
    items = []
    for _ in range(count):
        item, at = _read(record, at)
        items.append(item)
    if record[at]:
        raise NotCanonical
    return Reads(items=tuple(items)), at + 1


def _read(record: Any, start: int) -> tuple[Read, int]:
    occurred_at_ns, at = read_time(record, start + 80)
    version_seen, at = read_natural(record, at)
    outcome = _OUTCOMES[record[at]]
    matched_key, at = read_optional_hash(record, at + 1)
    similarity, at = _optional(record, at, _double)
    response_hash, at = read_optional_hash(record, at)
    (strategy, reason, principal), at = read_texts(record, at, 3)
    found = Read(
        trace_id=record[start : start + 16],
        principal=principal,
        occurred_at_ns=occurred_at_ns,
        outcome=outcome,
        exact_key=record[start + 16 : start + 48],
        matched_key=matched_key,
        similarity=similarity,
        strategy=strategy,
        version_seen=version_seen,
        prompt_hash=record[start + 48 : start + 80],
        response_hash=response_hash,
        reason=reason,
    )
    return found, at


def _stored(record: Any, start: int) -> tuple[Stored, int]:
    ttl_ms, at = read_natural(record, start + 160)
    texts, at = read_texts(record, at, 6)
    snapshot_id, semantic_key, encoder_id, model, parameters, finish_reason = texts
    evidence, at = _evidence(record, at)
    tags, at = read_array(record, at, read_text)
    chunks, at = read_array(record, at, read_hash)
    prompt, at = _optional(record, at, read_text)
    embedding, at = _optional(record, at, read_content)
    response, at = read_content(record, at)
    found = Stored(
        exact_key=record[start : start + 32],
        context_key=record[start + 32 : start + 64],
        prompt_hash=record[start + 64 : start + 96],
        request_hash=record[start + 96 : start + 128],
        semantic_key=semantic_key,
        embedding=embedding,
        encoder_id=encoder_id,
        model=model,
        parameters=parameters,
        prompt=prompt,
        response=response,
        response_hash=record[start + 128 : start + 160],
        finish_reason=finish_reason,
        evidence=evidence,
        ttl_ms=ttl_ms,
        tags=tags,
        source_chunks=chunks,
        snapshot_id=snapshot_id,
    )
    return found, at


def _evidence(record: Any, at: int) -> tuple[Evidence, int]:
    status, at = read_natural(record, at)
    streamed = _BOOLEANS[record[at]]
    entropy, at = _optional(record, at + 1, _double)
    confidence, at = _optional(record, at, _double)
    rule, at = read_text(record, at)
    found = Evidence(
        rule=rule,
        upstream_status=status,
        streamed=streamed,
        entropy_nats=entropy,
        confidence_ratio=confidence,
    )
    return found, at


def _optional(record: Any, at: int, value: Reader) -> tuple[Any, int]:
    mark = record[at]
    if mark == _PRESENT:
        return value(record, at + 1)
    if mark:
        raise NotCanonical
    return None, at + 1


def _double(record: Any, at: int) -> tuple[Any, int]:
    return _DOUBLE.unpack_from(record, at)[0], at + 8


_BODIES: Final[dict[int, Callable[[Any, int], tuple[Body, int]]]] = {
    2 * READS: _reads,
    2 * STORED: _stored,
}
