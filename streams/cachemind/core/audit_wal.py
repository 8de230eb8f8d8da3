"""Joins the receipts of one partition with the records that they are about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cachemind.core.audit_findings import (
    Finding,
    Place,
    Reason,
    Step,
    note,
    tampered,
)
from cachemind.core.receipt_chain import receipt_for, record_hash
from cachemind.errors import InvalidEvent, UndecodableRecord, UnknownSchema
from cachemind.events import Envelope, RolledBack
from cachemind.receipts import UNREADABLE, Receipt
from cachemind.types import Lsn, Offset, Partition


@dataclass(frozen=True, slots=True)
class WalRecord:
    """One record of the log, as it is there."""

    offset: Offset
    value: bytes | None


class WalJoin:
    """The records of one partition of the log, beside its receipts.

    `records` begin at `first`, the first offset that the log still has: what is
    below it was deleted, and nothing can be told of it.
    """

    def __init__(
        self,
        partition: Partition,
        first: Offset,
        records: Iterator[WalRecord],
        decode: Callable[[bytes], Envelope],
    ) -> None:
        self.compared = 0
        self._partition = partition
        self._first = first
        self._records = records
        self._decode = decode
        self._next = next(records, None)
        self._deleted = 0
        self._unread = 0

    def match(self, receipt: Receipt) -> Iterator[Finding]:
        """Yield what is found about the next receipt, and the records before it."""
        source = receipt.source.offset
        while self._next is not None and self._next.offset < source:
            text = f"the record has no receipt; the next one is {receipt.seq}"
            yield tampered(
                Step.WAL, Reason.WAL_UNSIGNED, text, self._at(self._next.offset)
            )
            self._advance()
        record = self._next
        if record is not None and record.offset == source:
            self._advance()
            self.compared += 1
            yield from self._compare(record, receipt)
        elif source < self._first:
            self._deleted += 1
        else:
            text = f"receipt {receipt.seq} is about a record that is not there"
            yield tampered(Step.WAL, Reason.WAL_MISSING, text, self._of(receipt))

    def rest(self) -> Iterator[Finding]:
        """Yield what is found once there is no further receipt."""
        if self._deleted:
            text = (
                f"{self._deleted} receipts are about records below "
                f"{self._partition}@{self._first}, which the log has deleted: those "
                "cannot be compared"
            )
            place = Place(partition=self._partition)
            yield note(Step.WAL, Reason.WAL_DELETED, text, place)
        if self._unread:
            text = (
                f"{self._unread} records were compared by their hash alone: the signer "
                "or this build has no schema of theirs"
            )
            place = Place(partition=self._partition)
            yield note(Step.WAL, Reason.WAL_UNREAD, text, place)
        if self._next is None:
            return
        first, count = self._next.offset, 1 + sum(1 for _ in self._records)
        text = f"{count} records from {self._partition}@{first} on have no receipt yet"
        yield note(Step.WAL, Reason.WAL_NOT_SIGNED_YET, text, self._at(first))

    def _advance(self) -> None:
        self._next = next(self._records, None)

    def _compare(self, record: WalRecord, receipt: Receipt) -> Iterator[Finding]:
        if record_hash(record.value) != receipt.record_hash:
            text = f"the record is not the one that receipt {receipt.seq} is about"
            yield tampered(Step.WAL, Reason.WAL_CHANGED, text, self._of(receipt))
            return
        try:
            envelope = self._decode(record.value or b"")
        except (UndecodableRecord, InvalidEvent):
            envelope = None
        except UnknownSchema:
            self._unread += 1
            return
        if envelope is not None and receipt.kind == UNREADABLE:
            # To a signer that was older than the record; its hash holds all the same.
            self._unread += 1
            return
        if _as_told(record.value, envelope, receipt) != receipt:
            text = f"receipt {receipt.seq} says something else than the record"
            yield tampered(Step.WAL, Reason.WAL_UNTRUE, text, self._of(receipt))
        elif envelope is not None and isinstance(envelope.body, RolledBack):
            yield self._voided(envelope, envelope.body, receipt)

    def _voided(
        self, envelope: Envelope, body: RolledBack, receipt: Receipt
    ) -> Finding:
        head = " and up" if body.expected_head < 0 else f" to {body.expected_head}"
        text = (
            f"a rollback of {envelope.namespace} to version {body.to_version}: where "
            f"it took effect, versions {body.to_version + 1}{head} of timeline "
            f"{envelope.timeline} are voided; their receipts stay, and hold"
        )
        return note(Step.WAL, Reason.VOIDED, text, self._of(receipt))

    def _at(self, offset: Offset) -> Place:
        return Place(partition=self._partition, source=Lsn(self._partition, offset))

    def _of(self, receipt: Receipt) -> Place:
        return Place(
            partition=self._partition,
            seq=receipt.seq,
            source=receipt.source,
            at_ns=receipt.signed_at_ns,
        )


def _as_told(
    value: bytes | None, envelope: Envelope | None, receipt: Receipt
) -> Receipt:
    """Return the receipt that an honest signer makes of the record."""
    return receipt_for(
        value,
        envelope,
        log_id=receipt.log_id,
        seq=receipt.seq,
        previous=receipt.previous,
        source_topic=receipt.source_topic,
        source=receipt.source,
        signed_at_ns=receipt.signed_at_ns,
        key_id=receipt.key_id,
    )
