"""Decodes whatever is on the audit topics, and takes one encoding of a value only."""

from __future__ import annotations

from cachemind.codec.cuts import decode_cuts_record, decode_key_event, decode_leaf
from cachemind.codec.receipts import decode_receipt, decode_signed_receipt
from cachemind.receipts import (
    Cut,
    CutsRecord,
    KeyEvent,
    Receipt,
    SignedKeyEvent,
    SignedReceipt,
)


class AuditDecoding:
    """`core.audit_means.AuditDecoder`, by this build's schemas.

    Each raises `UndecodableRecord`; `UnknownSchema` for a schema that this build lacks.
    """

    def signed_receipt(self, value: bytes, /) -> SignedReceipt:
        """Return a record of the topic of receipts."""
        return decode_signed_receipt(value)

    def receipt(self, receipt: bytes, /) -> Receipt:
        """Return the receipt in one."""
        return decode_receipt(receipt)

    def cuts_record(self, value: bytes, /) -> CutsRecord:
        """Return a record of the topic of cuts."""
        return decode_cuts_record(value)

    def leaf(self, leaf: bytes, /) -> Cut | SignedKeyEvent:
        """Return the leaf in one."""
        return decode_leaf(leaf)

    def key_event(self, event: bytes, /) -> KeyEvent:
        """Return the event in a signed one."""
        return decode_key_event(event)
