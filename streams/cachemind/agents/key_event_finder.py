"""Key events on the WAL: found by their receipts, and held against the root keys."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from cachemind.agents.audit_reading import ReadReceipt
from cachemind.agents.cuts_log import VerifyKeyEvent
from cachemind.codec.cuts import decode_signed_key_event
from cachemind.codec.receipt_place import ReceiptPlace
from cachemind.core.fold import kind_of
from cachemind.core.key_event_record import key_event_in
from cachemind.core.receipt_chain import record_hash
from cachemind.errors import (
    InvalidEvent,
    OffsetOutOfRange,
    UndecodableRecord,
    UnknownSchema,
)
from cachemind.events import PolicyChanged
from cachemind.ports import Decoder, LogReader, LogRecord
from cachemind.ports.audit import AuditMetrics
from cachemind.receipts import SYSTEM_NAMESPACE
from cachemind.types import Offset

log = logging.getLogger(__name__)

KIND: Final = kind_of(PolicyChanged(policy="{}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEventFinder:
    """Looks up what a receipt is about, where that may be a key event.

    One that does not hold is reported, has its receipt like any record, and no effect.
    """

    wal: LogReader
    decoder: Decoder
    verify: VerifyKeyEvent
    metrics: AuditMetrics

    def __call__(self, read: ReadReceipt, /) -> bytes | None:
        """Return the leaf of the key event, None where there is none that holds.

        Raises: `LogUnavailable`.
        """
        receipt = read.place
        if receipt.namespace != SYSTEM_NAMESPACE or receipt.kind != KIND:
            return None
        try:
            leaf = self._leaf(receipt)
            if leaf is not None:
                self.verify(decode_signed_key_event(leaf))
            return leaf
        except (InvalidEvent, UndecodableRecord, UnknownSchema) as error:
            log.critical("the key event at %s does not hold: %s", receipt.source, error)
            self.metrics.key_event_refused()
            return None

    def _leaf(self, receipt: ReceiptPlace) -> bytes | None:
        record = self._record(receipt)
        if record is None or record_hash(record.value) != receipt.record_hash:
            raise UndecodableRecord("the log has not what the receipt is about")
        return key_event_in(self.decoder.decode(record.value or b""))

    def _record(self, receipt: ReceiptPlace) -> LogRecord | None:
        partition, at = receipt.source.partition, receipt.source.offset
        try:
            for batch in self.wal.read(partition, at, Offset(at + 1)):
                return batch[0]
        except OffsetOutOfRange:
            pass
        return None
