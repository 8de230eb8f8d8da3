"""Touched keys, reports, requests and quarantines as bytes; see `state_bytes`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final, TypeVar

from cachemind.core.digest import to_bytes
from cachemind.core.packing import (
    Unpacker,
    pack_i64,
    pack_many,
    pack_optional,
    pack_text,
    pack_u64,
)
from cachemind.core.requested import Head, Request
from cachemind.core.rollback_report import (
    Quarantine,
    RollbackReport,
    RollbackStatus,
    Strategy,
)
from cachemind.errors import CorruptState
from cachemind.types import (
    HASH_BYTES,
    ID_BYTES,
    EventId,
    ExactKey,
    Namespace,
    Offset,
    Version,
)

Word = TypeVar("Word", bound=StrEnum)

FORMAT: Final = 1
_FORMAT_BYTE: Final = bytes([FORMAT])
_TOUCHED_HEAD: Final = 5


def encode_touched(keys: Iterable[ExactKey]) -> bytes:
    """Return the row of the keys that a version changed, in any order."""
    return _FORMAT_BYTE + pack_many(sorted(keys))


def decode_touched(raw: bytes) -> tuple[ExactKey, ...]:
    """Return the keys of a row, in order. Raises: `CorruptState`."""
    ends = range(_TOUCHED_HEAD + HASH_BYTES, len(raw) + 1, HASH_BYTES)
    if raw == _FORMAT_BYTE + len(ends).to_bytes(4, "big") + raw[_TOUCHED_HEAD:] and (
        len(raw) == _TOUCHED_HEAD + len(ends) * HASH_BYTES
    ):
        # What is written here: a rollback reads one row for each version on its way.
        return tuple([ExactKey(raw[end - HASH_BYTES : end]) for end in ends])
    row = _open("touched", raw)
    keys = row.many(lambda: ExactKey(row.fixed(HASH_BYTES)))
    row.end()
    return keys


def encode_target(target: Version) -> bytes:
    """Return the row of a rollback's target, whose version the key names."""
    return _FORMAT_BYTE + pack_u64(target)


def decode_target(raw: bytes) -> Version:
    """Return the target of a row. Raises: `CorruptState`."""
    row = _open("rollback target", raw)
    target = Version(row.u64())
    row.end()
    return target


def encode_request(request: Request) -> bytes:
    """Return the row of a request that is done."""
    return b"".join(
        (
            _FORMAT_BYTE,
            request.event_id,
            pack_u64(request.offset),
            pack_text(request.snapshot_id),
            pack_u64(request.ttl_ms),
        )
    )


def decode_request(raw: bytes) -> Request:
    """Return the request of a row. Raises: `CorruptState`."""
    row = _open("request", raw)
    found = Request(
        event_id=EventId(row.fixed(ID_BYTES)),
        offset=Offset(row.u64()),
        snapshot_id=row.text(),
        ttl_ms=row.u64(),
    )
    row.end()
    return found


def encode_head(head: Head) -> bytes:
    """Return the row of the present generation of requests."""
    return _FORMAT_BYTE + pack_u64(head.generation) + pack_u64(head.count)


def decode_head(raw: bytes) -> Head:
    """Return the generation of a row. Raises: `CorruptState`."""
    row = _open("generation of requests", raw)
    head = Head(generation=row.u64(), count=row.u64())
    row.end()
    return head


def encode_report(report: RollbackReport) -> bytes:
    """Return the row of a report, whose rollback id the key names."""
    return b"".join(
        (
            _FORMAT_BYTE,
            pack_text(report.namespace),
            pack_u64(report.offset),
            pack_text(report.status),
            pack_u64(report.from_version),
            pack_u64(report.to_version),
            pack_optional(
                None if report.new_version is None else pack_u64(report.new_version)
            ),
            pack_u64(report.restored),
            pack_u64(report.removed),
            pack_u64(report.changed),
            pack_u64(report.replayed),
            pack_i64(report.base),
            to_bytes(report.digest),
            pack_text(report.strategy),
            pack_text(report.verdict),
            pack_u64(report.duration_ms),
            pack_text(report.reason),
        )
    )


def decode_report(rollback_id: EventId, raw: bytes) -> RollbackReport:
    """Return the report of a row. Raises: `CorruptState`."""
    row = _open("rollback report", raw)
    report = RollbackReport(
        rollback_id=rollback_id,
        namespace=Namespace(row.text()),
        offset=Offset(row.u64()),
        status=_word(row, RollbackStatus),
        from_version=Version(row.u64()),
        to_version=Version(row.u64()),
        new_version=row.optional(lambda: Version(row.u64())),
        restored=row.u64(),
        removed=row.u64(),
        changed=row.u64(),
        replayed=row.u64(),
        base=Offset(row.i64()),
        digest=int.from_bytes(row.fixed(HASH_BYTES), "big"),
        strategy=_word(row, Strategy),
        verdict=row.text(),
        duration_ms=row.u64(),
        reason=row.text(),
    )
    row.end()
    return report


def encode_quarantine(quarantine: Quarantine) -> bytes:
    """Return the row of a quarantine, whose namespace the key names."""
    return _FORMAT_BYTE + pack_u64(quarantine.offset) + pack_text(quarantine.reason)


def decode_quarantine(raw: bytes) -> Quarantine:
    """Return the quarantine of a row. Raises: `CorruptState`."""
    row = _open("quarantine", raw)
    quarantine = Quarantine(offset=Offset(row.u64()), reason=row.text())
    row.end()
    return quarantine


def _word(row: Unpacker, words: Callable[[str], Word]) -> Word:
    text = row.text()
    try:
        return words(text)
    except ValueError as error:
        raise CorruptState("rollback report", "has a word without meaning") from error


def _open(what: str, raw: bytes) -> Unpacker:
    row = Unpacker(what, raw)
    row.version(FORMAT)
    return row
