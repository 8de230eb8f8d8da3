"""Receipts as bytes: Avro single-object encoding.

Each value has one encoding: the shortest numbers, arrays in one block. Every other
byte string is refused, so that no two receipts that differ in their bytes, and so in
their hash, say the same.

The schemas are written out here: who signs every record of the log has no time to
walk them. That both agree, byte for byte, is a law in the tests.
"""

from __future__ import annotations

from typing import Any, Final

from cachemind.codec.one_encoding import decoded, read_signature, signature_bytes
from cachemind.codec.primitives import (
    END,
    NULL,
    PRESENT,
    content,
    natural,
    read_array,
    read_content,
    read_hash,
    read_natural,
    read_optional_hash,
    read_text,
    read_time,
    small_natural,
    time,
    word,
)
from cachemind.receipts import Receipt, ReceiptItem, SignedReceipt
from cachemind.types import ID_BYTES, Lsn

RECEIPT: Final = bytes.fromhex("c301 83206710706a5d91")
SIGNED_RECEIPT: Final = bytes.fromhex("c301 4b5547a7fcbe7fe5")
"""The headers: C3 01, and the CRC-64-AVRO of the schema that is written out here."""


def encode_receipt(receipt: Receipt) -> bytes:
    """Return the exact bytes that are hashed and signed.

    Raises: `ValueError` where a number is past its type, or a text has no UTF-8.
    """
    source, op_hash = receipt.source, receipt.op_hash
    parts = [
        RECEIPT,
        receipt.previous,
        receipt.record_hash,
        small_natural(receipt.partition),
        natural(receipt.seq),
        small_natural(source.partition),
        natural(source.offset),
        time(receipt.signed_at_ns),
        natural(receipt.timeline),
        word(receipt.log_id),
        word(receipt.source_topic),
        word(receipt.kind),
        word(receipt.namespace),
        word(receipt.writer),
        word(receipt.key_id),
        NULL if op_hash is None else PRESENT + op_hash,
    ]
    if receipt.items:
        parts.append(natural(len(receipt.items)))
        for item in receipt.items:
            parts += _item(item)
    parts.append(END)
    return b"".join(parts)


def _item(item: ReceiptItem) -> tuple[bytes, ...]:
    context, prompt, response = (
        item.context_hash,
        item.prompt_hash,
        item.response_hash,
    )
    return (
        item.trace_id,
        time(item.occurred_at_us),
        word(item.outcome),
        word(item.principal),
        NULL if context is None else PRESENT + context,
        NULL if prompt is None else PRESENT + prompt,
        NULL if response is None else PRESENT + response,
    )


def decode_receipt(record: bytes) -> Receipt:
    """Return the receipt in `record`.

    Raises: `UndecodableRecord`; `UnknownSchema` for a schema that this build lacks.
    """
    return decoded(record, RECEIPT, _read_receipt, encode_receipt)


def _read_receipt(record: Any, start: int) -> tuple[Receipt, int]:
    previous, at = read_hash(record, start)
    record_hash, at = read_hash(record, at)
    partition, at = read_natural(record, at)
    seq, at = read_natural(record, at)
    source, at = _read_lsn(record, at)
    signed_at_ns, at = read_time(record, at)
    timeline, at = read_natural(record, at)
    log_id, at = read_text(record, at)
    source_topic, at = read_text(record, at)
    kind, at = read_text(record, at)
    namespace, at = read_text(record, at)
    writer, at = read_text(record, at)
    key_id, at = read_text(record, at)
    op_hash, at = read_optional_hash(record, at)
    items, at = read_array(record, at, _read_item)
    found = Receipt(
        log_id=log_id,
        partition=partition,
        seq=seq,
        previous=previous,
        source_topic=source_topic,
        source=source,
        record_hash=record_hash,
        kind=kind,
        namespace=namespace,
        timeline=timeline,
        writer=writer,
        op_hash=op_hash,
        items=items,
        signed_at_ns=signed_at_ns,
        key_id=key_id,
    )
    return found, at


def _read_lsn(record: Any, start: int) -> tuple[Lsn, int]:
    partition, at = read_natural(record, start)
    offset, at = read_natural(record, at)
    return Lsn(partition, offset), at


def _read_item(record: Any, start: int) -> tuple[ReceiptItem, int]:
    trace_id = record[start : start + ID_BYTES]
    occurred_at_us, at = read_natural(record, start + ID_BYTES)
    outcome, at = read_text(record, at)
    principal, at = read_text(record, at)
    context_hash, at = read_optional_hash(record, at)
    prompt_hash, at = read_optional_hash(record, at)
    response_hash, at = read_optional_hash(record, at)
    found = ReceiptItem(
        trace_id=trace_id,
        principal=principal,
        occurred_at_us=occurred_at_us,
        outcome=outcome,
        context_hash=context_hash,
        prompt_hash=prompt_hash,
        response_hash=response_hash,
    )
    return found, at


def encode_signed_receipt(signed: SignedReceipt) -> bytes:
    """Return the value of a record of the topic `audit`. Raises: `ValueError`."""
    parts = (
        SIGNED_RECEIPT,
        content(signed.receipt),
        *signature_bytes(signed.signature),
    )
    return b"".join(parts)


def decode_signed_receipt(record: bytes) -> SignedReceipt:
    """Return the receipt's exact bytes, not looked into, and the signature.

    Raises: `UndecodableRecord`; `UnknownSchema` for a schema that this build lacks.
    """
    return decoded(record, SIGNED_RECEIPT, _read_signed_receipt, encode_signed_receipt)


def _read_signed_receipt(record: Any, start: int) -> tuple[SignedReceipt, int]:
    receipt, at = read_content(record, start)
    signature, at = read_signature(record, at)
    return SignedReceipt(receipt=receipt, signature=signature), at
