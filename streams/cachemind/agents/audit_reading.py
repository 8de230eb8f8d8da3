"""Finding places on the topics of an audit log, by position.

Offsets have gaps where transactions ended or were aborted, so the last record is
somewhere below the end, and a receipt's offset does not follow from its seq.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from cachemind.codec.receipt_place import ReceiptPlace, place_of, receipt_in
from cachemind.codec.receipts import decode_receipt, decode_signed_receipt
from cachemind.core.merkle import leaf_hash
from cachemind.errors import AuditBroken, UndecodableRecord, UnknownSchema
from cachemind.ports import LogReader, LogRecord
from cachemind.receipts import SignedReceipt
from cachemind.types import Offset, Partition, Sha256

FIRST_WINDOW: Final = 256
WIDENING: Final = 8
FOREIGN: Final = "not-a-receipt"


class ReadReceipt(NamedTuple):
    """A receipt as it was read: its exact bytes, their hash and its place."""

    content: bytes
    leaf: Sha256
    place: ReceiptPlace


def receipt_of(record: LogRecord) -> ReadReceipt:
    """Return the receipt that a record of the audit topic holds.

    Raises: `AuditBroken` where it holds something else.
    """
    try:
        content = receipt_in(record.value or b"")
        return ReadReceipt(content, leaf_hash(content), place_of(content))
    except (UndecodableRecord, UnknownSchema) as error:
        raise AuditBroken(f"audit offset {record.lsn}", FOREIGN, str(error)) from error


def signed_receipt_of(record: LogRecord) -> SignedReceipt:
    """Return what a record of the audit topic holds, decoded to the last byte.

    Raises: `AuditBroken` where it holds something else.
    """
    try:
        signed = decode_signed_receipt(record.value or b"")
        decode_receipt(signed.receipt)
    except (UndecodableRecord, UnknownSchema) as error:
        raise AuditBroken(f"audit offset {record.lsn}", FOREIGN, str(error)) from error
    return signed


def last_records(
    reader: LogReader, partition: Partition
) -> tuple[Sequence[LogRecord], Offset, Offset]:
    """Return the last committed records, some more, and the topic's bounds.

    None only where there are none at all. Raises: `LogUnavailable`.
    """
    first, end = reader.bounds(partition)
    window = FIRST_WINDOW
    while True:
        start = Offset(max(first, end - window))
        found = [r for batch in reader.read(partition, start, end) for r in batch]
        if found or start == first:
            return found, first, end
        window *= WIDENING


def offset_before(reader: LogReader, partition: Partition, seq: int) -> Offset:
    """Return from where on to read so that receipt `seq` comes, if it is there.

    Goes back from the end, by ever wider steps: what is looked for is recent.
    Raises: `LogUnavailable`, `AuditBroken`.
    """
    first, end = reader.bounds(partition)
    window = FIRST_WINDOW
    while True:
        start = Offset(max(first, end - window))
        if start == first or _begins_by(reader, partition, start, end, seq):
            return start
        window *= WIDENING


def _begins_by(
    reader: LogReader, partition: Partition, start: Offset, end: Offset, seq: int
) -> bool:
    """Return whether the first receipt in [start, end) is not after `seq`."""
    for batch in reader.read(partition, start, end):
        return receipt_of(batch[0]).place.seq <= seq
    return False
