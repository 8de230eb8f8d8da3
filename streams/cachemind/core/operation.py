"""The operation behind an event, as the verb, key and payload that `op_hash` binds."""

from __future__ import annotations

from typing import assert_never

from cachemind.core.fold import kind_of
from cachemind.core.op_hash import op_hash
from cachemind.events import (
    Body,
    Evicted,
    Feedback,
    Invalidated,
    KeyShredded,
    Pinned,
    PolicyChanged,
    Read,
    Reads,
    Refused,
    RolledBack,
    SnapshotTaken,
    Stored,
)
from cachemind.types import Sha256

_NO_KEY = bytes(32)


def hash_of(body: Body, occurred_at_ns: int) -> Sha256:
    """Return the `op_hash` of an envelope with this body and time."""
    key, payload = operation_of(body)
    return op_hash(kind_of(body), key, payload, occurred_at_ns)


def operation_of(body: Body) -> tuple[bytes, bytes]:
    """Return (key, payload) of `body`: what it is about, and what it says of it.

    Fields before the last one of a payload are of fixed width, or numbers ended by a
    colon, so that two bodies of one kind never share a payload by accident.
    """
    match body:
        case Reads():
            return body.items[0].exact_key, b"".join(map(_look_up, body.items))
        case Stored():
            return body.exact_key, body.response
        case Refused():
            return body.exact_key, b"%d:%b" % (
                body.upstream_status,
                body.reason.encode(),
            )
        case Invalidated():
            return f"{body.kind}:{body.value}".encode(), body.reason.encode()
        case Evicted():
            return b"".join(body.keys), body.reason.encode()
        case Pinned():
            return body.exact_key, b"\1" if body.pinned else b"\0"
        case Feedback():
            said = body.served_trace_id + body.verdict.encode()
            return body.matched_key, said
        case RolledBack():
            numbers = f"{body.to_version}:{body.expected_head}:{body.reason}"
            return body.rollback_id, numbers.encode()
        case SnapshotTaken():
            return body.snapshot_id.encode(), body.digest
        case PolicyChanged():
            return b"", body.policy.encode()
        case KeyShredded():
            return body.key_id.encode(), body.reason.encode()
        case _:
            assert_never(body)


def _look_up(read: Read) -> bytes:
    matched = read.matched_key or _NO_KEY
    return read.trace_id + read.exact_key + matched + read.outcome.encode() + b":"
