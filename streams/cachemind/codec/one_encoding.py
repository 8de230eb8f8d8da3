"""One encoding a value: what the audit's codecs share.

Source: Avro 1.12 specification, "Single-object encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, TypeVar

from cachemind.codec.framing import SINGLE_OBJECT_BYTES, schema_identity
from cachemind.codec.primitives import read_text, word
from cachemind.errors import InvalidEvent, UndecodableRecord, UnknownSchema
from cachemind.receipts import SIGNATURE_BYTES, Signature

Value = TypeVar("Value")
_UNFIT: Final = (IndexError, ValueError, struct.error)


def decoded(
    record: bytes,
    header: bytes,
    read: Callable[[Any, int], tuple[Value, int]],
    encode: Callable[[Value], bytes],
) -> Value:
    """Return the value behind `header`, if `encode` gives the same bytes again.

    Raises: `UndecodableRecord`; `UnknownSchema` for another header.
    """
    if not record.startswith(header):
        identity = schema_identity(record)
        shown = identity if isinstance(identity, int) else identity[::-1].hex()
        raise UnknownSchema(f"audit schema {shown}")
    try:
        found, _ = read(record, SINGLE_OBJECT_BYTES)
        encoded = encode(found)
    except InvalidEvent as error:
        raise UndecodableRecord(f"invalid {error.field}") from error
    except _UNFIT as error:
        raise UndecodableRecord("cut, or not what its schema says") from error
    if encoded != record:
        raise UndecodableRecord("not the one encoding of what it says")
    return found


def signature_bytes(signature: Signature) -> tuple[bytes, bytes]:
    """Return the fields of a `Signature`."""
    return word(signature.key_id), signature.value


def read_signature(record: Any, start: int) -> tuple[Signature, int]:
    """Read what `signature_bytes` gives."""
    key_id, at = read_text(record, start)
    end = at + SIGNATURE_BYTES
    return Signature(key_id=key_id, value=record[at:end]), end
