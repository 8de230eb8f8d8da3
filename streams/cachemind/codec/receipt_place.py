"""Where a receipt belongs, read from its bytes without decoding all of it.

Who follows every receipt of the log has no time to look into the operations that it
lists. Whether the rest is the one encoding of a receipt is for a verifier to say.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from cachemind.codec.framing import SINGLE_OBJECT_BYTES
from cachemind.codec.primitives import (
    read_content,
    read_hash,
    read_natural,
    read_texts,
    read_time,
)
from cachemind.codec.receipts import RECEIPT, SIGNED_RECEIPT
from cachemind.errors import UndecodableRecord, UnknownSchema
from cachemind.receipts import LogId, Seq
from cachemind.types import Lsn, Partition, Sha256


class ReceiptPlace(NamedTuple):
    """What a `Receipt` says of its place, and of the record that it is about."""

    log_id: LogId
    partition: Partition
    seq: Seq
    previous: Sha256
    source_topic: str
    source: Lsn
    record_hash: Sha256
    kind: str
    namespace: str


def receipt_in(record: bytes) -> bytes:
    """Return the receipt's exact bytes in a record of the topic `audit`.

    Raises: `UndecodableRecord`, `UnknownSchema`.
    """
    if not record.startswith(SIGNED_RECEIPT):
        raise UnknownSchema("no signed receipt")
    try:
        receipt, end = read_content(record, SINGLE_OBJECT_BYTES)
    except (IndexError, ValueError) as error:
        raise UndecodableRecord("cut, or not what its schema says") from error
    if end >= len(record):
        raise UndecodableRecord("cut before its signature")
    return bytes(receipt)


def place_of(receipt: bytes) -> ReceiptPlace:
    """Return the place of a receipt. Raises: `UndecodableRecord`, `UnknownSchema`."""
    if not receipt.startswith(RECEIPT):
        raise UnknownSchema("no receipt")
    try:
        return _read(receipt)
    except (IndexError, ValueError, struct.error) as error:
        raise UndecodableRecord("cut, or not what its schema says") from error


def _read(receipt: bytes) -> ReceiptPlace:
    previous, at = read_hash(receipt, SINGLE_OBJECT_BYTES)
    record_hash, at = read_hash(receipt, at)
    partition, at = read_natural(receipt, at)
    seq, at = read_natural(receipt, at)
    source_partition, at = read_natural(receipt, at)
    source_offset, at = read_natural(receipt, at)
    _, at = read_time(receipt, at)
    _, at = read_natural(receipt, at)
    (log_id, source_topic, kind, namespace), at = read_texts(receipt, at, 4)
    return ReceiptPlace(
        log_id=log_id,
        partition=partition,
        seq=seq,
        previous=previous,
        source_topic=source_topic,
        source=Lsn(source_partition, source_offset),
        record_hash=record_hash,
        kind=kind,
        namespace=namespace,
    )
