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

from cachemind.codec.fast_writer import MAX_LONG, READS, STORED, SYMBOLS
from cachemind.errors import InvalidEvent
from cachemind.events import Body, Envelope, Evidence, Outcome, Read, Reads, Stored

_DOUBLE: Final = struct.Struct("<d")
_NINE: Final = struct.Struct("<QB")
_PRESENT: Final = 2
_BOOLEANS: Final = {0: False, 1: True}
_OUTCOMES: Final = {2 * SYMBOLS.index(one): one for one in Outcome}
_LONGEST: Final = 63
"""Highest shift of a varint's last byte; without it, hostile bytes cost O(n^2)."""


_UNUSUAL: Final = (IndexError, KeyError, UnicodeDecodeError, struct.error, InvalidEvent)


class _GiveUp(IndexError):
    """An encoding that only the general reader handles."""


def read(record: Any, start: int) -> Envelope | None:
    """Return the event from `start` on, None where the general reader must look."""
    try:
        occurred_at_ns, at = _time(record, start + 64)
        timeline, at = _natural(record, at)
        writer_seq, at = _natural(record, at)
        namespace, at = _text(record, at)
        principal, at = _text(record, at)
        writer, at = _text(record, at)
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
    count, at = _natural(record, at)
    items = []
    for _ in range(count):
        item, at = _read(record, at)
        items.append(item)
    if record[at]:
        raise _GiveUp
    return Reads(items=tuple(items)), at + 1


def _read(record: Any, start: int) -> tuple[Read, int]:
    occurred_at_ns, at = _time(record, start + 80)
    version_seen, at = _natural(record, at)
    outcome = _OUTCOMES[record[at]]
    matched_key, at = _optional_hash(record, at + 1)
    similarity, at = _optional(record, at, _double)
    response_hash, at = _optional_hash(record, at)
    strategy, at = _text(record, at)
    reason, at = _text(record, at)
    principal, at = _text(record, at)
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
    ttl_ms, at = _natural(record, start + 160)
    snapshot_id, at = _text(record, at)
    semantic_key, at = _text(record, at)
    encoder_id, at = _text(record, at)
    model, at = _text(record, at)
    parameters, at = _text(record, at)
    finish_reason, at = _text(record, at)
    evidence, at = _evidence(record, at)
    tags, at = _array(record, at, _text)
    chunks, at = _array(record, at, _hash)
    prompt, at = _optional(record, at, _text)
    embedding, at = _optional(record, at, _bytes)
    response, at = _bytes(record, at)
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
    status, at = _natural(record, at)
    streamed = _BOOLEANS[record[at]]
    entropy, at = _optional(record, at + 1, _double)
    confidence, at = _optional(record, at, _double)
    rule, at = _text(record, at)
    found = Evidence(
        rule=rule,
        upstream_status=status,
        streamed=streamed,
        entropy_nats=entropy,
        confidence_ratio=confidence,
    )
    return found, at


def _array(record: Any, at: int, item: Item) -> tuple[tuple[Any, ...], int]:
    if not record[at]:
        return (), at + 1
    count, at = _natural(record, at)
    items = []
    for _ in range(count):
        one, at = item(record, at)
        items.append(one)
    if record[at]:
        raise _GiveUp
    return tuple(items), at + 1


def _optional(record: Any, at: int, value: Item) -> tuple[Any, int]:
    mark = record[at]
    if mark == _PRESENT:
        return value(record, at + 1)
    if mark:
        raise _GiveUp
    return None, at + 1


def _optional_hash(record: Any, at: int) -> tuple[Any, int]:
    mark = record[at]
    at += 1
    if mark == _PRESENT:
        return record[at : at + 32], at + 32
    if mark:
        raise _GiveUp
    return None, at


def _hash(record: Any, at: int) -> tuple[Any, int]:
    # A slice past the end is no error: an array of 2**62 of them would never end.
    if at + 32 > len(record):
        raise _GiveUp
    return record[at : at + 32], at + 32


def _double(record: Any, at: int) -> tuple[Any, int]:
    return _DOUBLE.unpack_from(record, at)[0], at + 8


def _text(record: Any, at: int) -> tuple[Any, int]:
    size = record[at]
    if size & 0x81:
        content, at = _bytes(record, at)
        return content.decode(), at
    end = at + 1 + (size >> 1)
    return record[at + 1 : end].decode(), end


def _bytes(record: Any, at: int) -> tuple[Any, int]:
    size, at = _natural(record, at)
    return record[at : at + size], at + size


def _time(record: Any, at: int) -> tuple[Any, int]:
    """Return a number that most likely takes nine bytes: a time from 1971 to 2116.

    Halves the cost of `_natural`'s loop: eight groups of 7 bits move together, in
    pairs, then in fours, then in eights.
    """
    eight, last = _NINE.unpack_from(record, at)
    if last > 0x7F or eight & 0x8080808080808080 != 0x8080808080808080:
        return _natural(record, at)
    eight = (eight & 0x007F007F007F007F) | (eight & 0x7F007F007F007F00) >> 1
    eight = (eight & 0x00003FFF00003FFF) | (eight & 0x3FFF00003FFF0000) >> 2
    eight = (eight & 0x000000000FFFFFFF) | (eight & 0x0FFFFFFF00000000) >> 4
    if eight & 1:
        raise _GiveUp
    return (eight | last << 56) >> 1, at + 9


def _natural(record: Any, at: int) -> tuple[Any, int]:
    byte = record[at]
    value = byte & 0x7F
    shift = 0
    while byte > 0x7F:
        at += 1
        shift += 7
        if shift > _LONGEST:
            raise _GiveUp
        byte = record[at]
        value |= (byte & 0x7F) << shift
    if value & 1 or value > 2 * MAX_LONG:
        raise _GiveUp
    return value >> 1, at + 1


Item = Callable[[Any, int], tuple[Any, int]]
_BODIES: Final[dict[int, Callable[[Any, int], tuple[Body, int]]]] = {
    2 * READS: _reads,
    2 * STORED: _stored,
}
