"""What is signed about a record of the log, and over which bytes.

A receipt's bytes are hashed twice: with the prefix of a leaf for the chain and the
tree, and without one for its signature. A signing input is

    "CMv1" SP length SP type SP length SP body

in ASCII, the lengths in decimal and in bytes, `type` naming the use and its version:
no two pairs of type and body give the same input.
Source: DSSE 1.0.2, "PAE: Pre-Authentication Encoding", with a prefix of our own.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final, assert_never

from cachemind.core.fold import kind_of
from cachemind.errors import InvalidEvent
from cachemind.events import (
    Envelope,
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
from cachemind.receipts import (
    UNREADABLE,
    KeyId,
    LogId,
    Receipt,
    ReceiptItem,
    Seq,
)
from cachemind.types import (
    FIRST_TIMELINE,
    Lsn,
    Partition,
    Sha256,
    TraceId,
    WriterId,
)

RECEIPT_TYPE: Final = "cachemind/receipt-hash/v1"
"""Type of what signs a receipt: the body is SHA-256 of its bytes."""

KEY_EVENT_TYPE: Final = "cachemind/key-event/v1"
"""Type of what signs a key event: the body is its bytes."""

MAX_SIGNING_INPUT_BYTES: Final = 4096
"""What a KMS takes to hash and sign by itself."""

_NS_PER_US: Final = 1000
_RECEIPT_PREFIX: Final = (
    f"CMv1 {len(RECEIPT_TYPE)} {RECEIPT_TYPE} {sha256().digest_size} ".encode()
)


def signing_input(kind: str, body: bytes) -> bytes:
    """Return the bytes to sign for `body` in the use that `kind` names."""
    name = kind.encode()
    return b"CMv1 %d %b %d %b" % (len(name), name, len(body), body)


def receipt_signing_input(receipt: bytes) -> bytes:
    """Return what is signed for a receipt, given as its exact bytes.

    Short for any receipt, so that every provider of keys takes it.
    """
    return _RECEIPT_PREFIX + sha256(receipt).digest()


def key_event_signing_input(event: bytes) -> bytes:
    """Return what is signed for a key event, given as its exact bytes.

    Raises: `InvalidEvent` naming the field `event` where it is too long to sign.
    """
    found = signing_input(KEY_EVENT_TYPE, event)
    if len(found) > MAX_SIGNING_INPUT_BYTES:
        raise InvalidEvent(
            "event",
            f"must be signed in {MAX_SIGNING_INPUT_BYTES} bytes, found {len(found)}",
        )
    return found


def receipt_for(
    record: bytes | None,
    envelope: Envelope | None,
    *,
    log_id: LogId,
    seq: Seq,
    previous: Sha256,
    source_topic: str,
    source: Lsn,
    signed_at_ns: int,
    key_id: KeyId,
) -> Receipt:
    """Return the receipt over the log's record with the value `record`.

    `envelope` is what the value says; None where it could not be decoded.
    """
    return Receipt(
        log_id=log_id,
        partition=Partition(source.partition),
        seq=seq,
        previous=previous,
        source_topic=source_topic,
        source=source,
        record_hash=record_hash(record),
        kind=UNREADABLE if envelope is None else kind_of(envelope.body),
        namespace="" if envelope is None else envelope.namespace,
        timeline=FIRST_TIMELINE if envelope is None else envelope.timeline,
        writer=WriterId("") if envelope is None else envelope.writer,
        op_hash=None if envelope is None else envelope.op_hash,
        items=() if envelope is None else items_of(envelope),
        signed_at_ns=signed_at_ns,
        key_id=key_id,
    )


def record_hash(record: bytes | None) -> Sha256:
    """Return SHA-256 of a record's value; of no bytes where it has none."""
    return Sha256(sha256(record or b"").digest())


def items_of(envelope: Envelope) -> tuple[ReceiptItem, ...]:
    """Return what a receipt tells of each operation in the event."""
    body = envelope.body
    if isinstance(body, Reads):
        return tuple(map(_of_read, body.items))
    if isinstance(body, Stored):
        return (_of_stored(envelope, body),)
    trace_id, context = _about(envelope.trace_id, body)
    return (
        ReceiptItem(
            trace_id=trace_id,
            principal=envelope.principal,
            occurred_at_us=envelope.occurred_at_ns // _NS_PER_US,
            outcome=kind_of(body),
            context_hash=context,
            prompt_hash=None,
            response_hash=None,
        ),
    )


def _of_read(read: Read) -> ReceiptItem:
    return ReceiptItem(
        trace_id=read.trace_id,
        principal=read.principal,
        occurred_at_us=read.occurred_at_ns // _NS_PER_US,
        outcome=read.outcome.value,
        context_hash=Sha256(read.exact_key),
        prompt_hash=read.prompt_hash,
        response_hash=read.response_hash,
    )


def _of_stored(envelope: Envelope, stored: Stored) -> ReceiptItem:
    return ReceiptItem(
        trace_id=envelope.trace_id,
        principal=envelope.principal,
        occurred_at_us=envelope.occurred_at_ns // _NS_PER_US,
        outcome=kind_of(stored),
        context_hash=Sha256(stored.context_key),
        prompt_hash=stored.prompt_hash,
        response_hash=stored.response_hash,
    )


def _about(
    trace_id: TraceId,
    body: Refused
    | Invalidated
    | Evicted
    | Pinned
    | Feedback
    | RolledBack
    | SnapshotTaken
    | PolicyChanged
    | KeyShredded,
) -> tuple[TraceId, Sha256 | None]:
    """Return the trace that the event is found by, and the one key it is about."""
    match body:
        case Refused():
            return body.trace_id, Sha256(body.exact_key)
        case Pinned():
            return trace_id, Sha256(body.exact_key)
        case Feedback():
            return trace_id, Sha256(body.matched_key)
        case (
            Invalidated()
            | Evicted()
            | RolledBack()
            | SnapshotTaken()
            | PolicyChanged()
            | KeyShredded()
        ):
            return trace_id, None
        case _:
            assert_never(body)
