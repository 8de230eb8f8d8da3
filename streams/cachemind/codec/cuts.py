"""The log of cuts as bytes: cuts, key events and the records that carry them.

Each value has one encoding, as receipts have.
"""

from __future__ import annotations

from typing import Any, Final

from cachemind.codec.one_encoding import decoded, read_signature, signature_bytes
from cachemind.codec.primitives import (
    SMALL,
    array,
    content,
    natural,
    read_array,
    read_content,
    read_hash,
    read_natural,
    read_text,
    small_natural,
    text,
)
from cachemind.errors import UnknownSchema
from cachemind.receipts import (
    Cut,
    CutsRecord,
    KeyChange,
    KeyEvent,
    KeyRole,
    PartitionHead,
    SignedKeyEvent,
)

CUT: Final = bytes.fromhex("c301 839721c24d24807d")
KEY_EVENT: Final = bytes.fromhex("c301 481b902e75082863")
SIGNED_KEY_EVENT: Final = bytes.fromhex("c301 2538059b1ef29542")
CUTS_RECORD: Final = bytes.fromhex("c301 972cd60b0610f516")
"""The headers: C3 01, and the CRC-64-AVRO of the schema that is written out here."""

_ROLES: Final = (None, *KeyRole)
_CHANGES: Final = (None, *KeyChange)


def encode_cut(cut: Cut) -> bytes:
    """Return the exact bytes of the leaf. Raises: `ValueError`."""
    parts = (
        CUT,
        cut.previous,
        natural(cut.index),
        natural(cut.at_ns),
        text(cut.log_id),
        array([_head(head) for head in cut.heads]),
    )
    return b"".join(parts)


def _head(head: PartitionHead) -> bytes:
    return b"".join(
        (
            head.root,
            small_natural(head.partition),
            natural(head.size),
            array(head.frontier),
        )
    )


def decode_cut(record: bytes) -> Cut:
    """Return the cut in `record`.

    Raises: `UndecodableRecord`; `UnknownSchema` for a schema that this build lacks.
    """
    return decoded(record, CUT, _read_cut, encode_cut)


def _read_cut(record: Any, start: int) -> tuple[Cut, int]:
    previous, at = read_hash(record, start)
    index, at = read_natural(record, at)
    at_ns, at = read_natural(record, at)
    log_id, at = read_text(record, at)
    heads, at = read_array(record, at, _read_head)
    found = Cut(log_id=log_id, index=index, previous=previous, at_ns=at_ns, heads=heads)
    return found, at


def _read_head(record: Any, start: int) -> tuple[PartitionHead, int]:
    root, at = read_hash(record, start)
    partition, at = read_natural(record, at)
    size, at = read_natural(record, at)
    frontier, at = read_array(record, at, read_hash)
    found = PartitionHead(partition=partition, size=size, root=root, frontier=frontier)
    return found, at


def encode_key_event(event: KeyEvent) -> bytes:
    """Return the exact bytes that are signed. Raises: `ValueError`."""
    parts = (
        KEY_EVENT,
        SMALL[_CHANGES.index(event.change)],
        SMALL[_ROLES.index(event.role)],
        text(event.key_id),
        content(event.public_key),
        _from_minus_one(event.last_good_cut),
        natural(event.at_ns),
        text(event.log_id),
        text(event.principal),
        text(event.reason),
    )
    return b"".join(parts)


def decode_key_event(record: bytes) -> KeyEvent:
    """Return the key event in `record`.

    Raises: `UndecodableRecord`; `UnknownSchema` for a schema, a change or a role that
    this build lacks.
    """
    return decoded(record, KEY_EVENT, _read_key_event, encode_key_event)


def _read_key_event(record: Any, start: int) -> tuple[KeyEvent, int]:
    change, at = _read_symbol(record, start, _CHANGES)
    role, at = _read_symbol(record, at, _ROLES)
    key_id, at = read_text(record, at)
    public_key, at = read_content(record, at)
    last_good_cut, at = _read_from_minus_one(record, at)
    at_ns, at = read_natural(record, at)
    log_id, at = read_text(record, at)
    principal, at = read_text(record, at)
    reason, at = read_text(record, at)
    found = KeyEvent(
        log_id=log_id,
        change=change,
        role=role,
        key_id=key_id,
        public_key=public_key,
        last_good_cut=last_good_cut,
        at_ns=at_ns,
        principal=principal,
        reason=reason,
    )
    return found, at


def _from_minus_one(value: int) -> bytes:
    return b"\x01" if value == -1 else natural(value)


def _read_from_minus_one(record: Any, at: int) -> tuple[int, int]:
    return (-1, at + 1) if record[at] == 1 else read_natural(record, at)


def _read_symbol(record: Any, at: int, symbols: tuple[Any, ...]) -> tuple[Any, int]:
    position, end = read_natural(record, at)
    if not 0 < position < len(symbols):
        raise UnknownSchema(f"symbol {position} of {len(symbols)} of a key event")
    return symbols[position], end


def encode_signed_key_event(signed: SignedKeyEvent) -> bytes:
    """Return the exact bytes of the leaf. Raises: `ValueError`."""
    signatures = [b"".join(signature_bytes(one)) for one in signed.signatures]
    return b"".join((SIGNED_KEY_EVENT, content(signed.event), array(signatures)))


def decode_signed_key_event(record: bytes) -> SignedKeyEvent:
    """Return the key event's exact bytes, not looked into, and the signatures.

    Raises: `UndecodableRecord`; `UnknownSchema` for a schema that this build lacks.
    """
    return decoded(
        record, SIGNED_KEY_EVENT, _read_signed_key_event, encode_signed_key_event
    )


def _read_signed_key_event(record: Any, start: int) -> tuple[SignedKeyEvent, int]:
    event, at = read_content(record, start)
    signatures, at = read_array(record, at, read_signature)
    return SignedKeyEvent(event=event, signatures=signatures), at


def encode_cuts_record(cuts: CutsRecord) -> bytes:
    """Return the value of a record of the topic `audit.cuts`. Raises: `ValueError`."""
    return b"".join((CUTS_RECORD, content(cuts.leaf), text(cuts.checkpoint)))


def decode_cuts_record(record: bytes) -> CutsRecord:
    """Return the leaf's exact bytes, not looked into, and the checkpoint.

    Raises: `UndecodableRecord`; `UnknownSchema` for a schema that this build lacks.
    """
    return decoded(record, CUTS_RECORD, _read_cuts_record, encode_cuts_record)


def _read_cuts_record(record: Any, start: int) -> tuple[CutsRecord, int]:
    leaf, at = read_content(record, start)
    checkpoint, at = read_text(record, at)
    return CutsRecord(leaf=leaf, checkpoint=checkpoint), at


def decode_leaf(leaf: bytes) -> Cut | SignedKeyEvent:
    """Return what a leaf of the log of cuts is.

    Raises: `UndecodableRecord`; `UnknownSchema` where it is neither.
    """
    if leaf.startswith(SIGNED_KEY_EVENT):
        return decode_signed_key_event(leaf)
    return decode_cut(leaf)
