"""Signs one partition: WAL records in, committed receipts out.

The receipts are the only state. Whoever signs a partition first takes it over, which
ends every other signer of it in the middle of whatever it does, and only then looks
where the receipts end: nobody can add to them in between. After every error the same
is done again, so it never matters whether a commit that failed was one.

===========================================  ==========================================
bytes that no build can read, no value       a receipt that says so
a schema or event type this build lacks      the same: its hash is what counts
a receipt that does not follow on            stop
records deleted before they were signed      stop, also where there may have been some
===========================================  ==========================================
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from cachemind.agents.audit_reading import (
    last_records,
    receipt_of,
    signed_receipt_of,
)
from cachemind.agents.settled_place import SettledPlace
from cachemind.codec.receipt_place import ReceiptPlace
from cachemind.codec.receipts import encode_receipt, encode_signed_receipt
from cachemind.core.merkle import leaf_hash
from cachemind.core.receipt_chain import (
    receipt_for,
    receipt_signing_input,
    record_hash,
)
from cachemind.core.receipt_follow import (
    BEGINNING,
    FORK,
    LOST,
    NO_SOURCE,
    OTHER_LOG,
    ChainEnd,
    ReceiptChain,
)
from cachemind.errors import (
    AuditBroken,
    InvalidEvent,
    LogUnavailable,
    UndecodableRecord,
    UnknownSchema,
)
from cachemind.events import Envelope
from cachemind.ports import Clock, Decoder, Headers, LogReader, LogRecord, SigningKey
from cachemind.ports.audit import AuditMetrics, SoleWriter
from cachemind.receipts import LogId, Seq, SignedReceipt
from cachemind.types import Lsn, Offset, Partition, Sha256

log = logging.getLogger(__name__)

BATCH_RECORDS: Final = 1000
BATCH_BYTES: Final = 8 * 1024 * 1024
BATCH_S: Final = 0.5
"""A key that is far away signs only so long before what it has signed is appended."""

Failpoint = Callable[[str], None]


class ReceiptKeys(Protocol):
    """Which key signs receipts; asked from several threads."""

    def receipt_key(self) -> SigningKey:
        """Return the key that signs the next receipt. Raises: `KeyRefused`."""
        ...

    def vouches(self, read: SignedReceipt) -> bool:
        """Return whether the signature holds, as far as its key is known."""
        ...

    def receipts_under_cut(self, partition: Partition) -> int:
        """Return how many receipts of a partition are known to be under a cut."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Signing:
    """What the signers of all partitions share.

    `wal` and `audit` are asked from many threads.
    """

    log_id: LogId
    wal_topic: str
    decoder: Decoder
    wal: LogReader
    audit: LogReader
    clock: Clock
    keys: ReceiptKeys
    metrics: AuditMetrics
    failpoint: Failpoint


class PartitionSigner:
    """Signs the records of one partition. One thread at a time.

    `position` is the next WAL offset to look at; everything below it has a receipt
    or was proven absent. It means something only while `ready`.
    """

    def __init__(
        self,
        partition: Partition,
        signing: Signing,
        writer: SoleWriter,
        settled: SettledPlace,
    ) -> None:
        self.partition = partition
        self.position = Offset(0)
        self.ready = False
        self._signing = signing
        self._writer = writer
        self._settled = settled
        self._end = BEGINNING
        self._audit_end = Offset(0)
        self.stopping = False

    def begin(self) -> None:
        """Take the partition over and find the end of its receipts.

        Raises: `AuditBroken` where no receipt can follow on; `LogUnavailable`,
        `LogRejected`.
        """
        self.ready = False
        self._writer.take_over()
        self._signing.failpoint("signer.taken-over")
        records, first, self._audit_end = last_records(
            self._signing.audit, self.partition
        )
        if not records and first > 0:
            raise self._broken(LOST, f"all receipts below offset {first} were deleted")
        self._end = self._end_of(records)
        covered = self._signing.keys.receipts_under_cut(self.partition)
        if self._end.size < covered:
            raise self._broken(LOST, f"a cut is over {covered} receipts")
        self.position = self._place_on_wal(self._end)
        self.ready = True
        log.info(
            "partition %d: %d receipts, signing from %s",
            self.partition,
            self._end.size,
            Lsn(self.partition, self.position),
        )

    def sign(self, records: Sequence[LogRecord]) -> int:
        """Sign `records`, oldest first; return how many, fewer once told to `stop`.

        Records below `position` are dropped: a log gives some of them twice. That
        nothing is between the others is the caller's to know.
        Raises: `LogUnavailable` (begin again), `AuditBroken`, `LogRejected`,
        `KeyUnavailable`, `KeyRefused`.
        """
        fresh = [r for r in records if r.lsn.offset >= self.position]
        signed = 0
        while signed < len(fresh) and not self.stopping:
            signed += self._append(_one_batch(fresh, signed))
        return signed

    def settle(self, start: Offset, end: Offset) -> None:
        """Note that the WAL holds no committed record in [start, end)."""
        if self.position == start < end:
            self.position = end
            if self._end.leaf is not None:
                self._settled.note(self._end.leaf, end)

    def stop(self) -> None:
        """Begin no further batch. Any thread may say so."""
        self.stopping = True

    def close(self) -> None:
        """Leave the partition to others."""
        self.ready = False
        self._writer.close()

    # ---- the beginning --------------------------------------------------------------

    def _end_of(self, records: Sequence[LogRecord]) -> ChainEnd:
        """Return the end of the receipts, once the last ones are known to be sound.

        1. They follow on from each other.
        2. The last one is a receipt to the last byte, and its signature holds.
        3. The WAL has what it is about.
        """
        if not records:
            return BEGINNING
        found = [receipt_of(record) for record in records]
        chain = ReceiptChain(
            self._signing.log_id,
            self.partition,
            self._signing.wal_topic,
            ChainEnd(size=found[0].place.seq, leaf=None, source=NO_SOURCE),
        )
        for one in found:
            chain.take(one.place, one.leaf)
        last = signed_receipt_of(records[-1])
        if not self._signing.keys.vouches(last):
            raise self._broken(FORK, "the last receipt is not signed by a key of ours")
        return self._checked_source(found[-1].place, chain.end)

    def _checked_source(self, last: ReceiptPlace, end: ChainEnd) -> ChainEnd:
        """Return `end` if the last receipt is about what the WAL has at its place."""
        wal = self._signing.wal
        first, beyond = wal.bounds(self.partition)
        at = last.source.offset
        if at >= beyond:
            raise self._broken(
                OTHER_LOG, f"a receipt is about {last.source}, the log ends at {beyond}"
            )
        if at >= first:
            found = [r for b in wal.read(self.partition, at, Offset(at + 1)) for r in b]
            if [record_hash(record.value) for record in found] != [last.record_hash]:
                raise self._broken(
                    OTHER_LOG, f"the log has another record at {last.source}"
                )
        return end

    def _place_on_wal(self, end: ChainEnd) -> Offset:
        first, _ = self._signing.wal.bounds(self.partition)
        if end == BEGINNING:
            return first
        after = Offset(end.source + 1)
        if first > after and end.leaf is not None:
            after = self._settled.after(end.leaf) or after
        if first > after:
            raise self._broken(
                LOST, f"the log begins at {first}, {end.source} was the last one signed"
            )
        return after

    # ---- going on -------------------------------------------------------------------

    def _append(self, batch: Sequence[LogRecord]) -> int:
        size, leaf = self._end.size, self._end.leaf
        if not self.ready or leaf is None:
            raise LogUnavailable("the end of the receipts is to be found again")
        key = self._signing.keys.receipt_key()
        values, end = self._receipts(batch, key, size, leaf)
        self._signing.failpoint("signer.signed")
        headers: Headers = ()
        name = b"%d" % self.partition
        self.ready = False
        lsns = self._writer.append_all(
            [(name, value, headers) for value in values], partial(self._may_commit, key)
        )
        self._signing.failpoint("signer.committed")
        self._demand_no_other(lsns[0].offset)
        # The mark of the commit takes an offset.
        self._audit_end = Offset(lsns[-1].offset + 2)
        self._end = end
        self.position = Offset(end.source + 1)
        self.ready = True
        self._signing.metrics.signed(self.partition, len(values))
        return len(values)

    def _receipts(
        self, batch: Sequence[LogRecord], key: SigningKey, size: int, leaf: Sha256
    ) -> tuple[list[bytes], ChainEnd]:
        """Return the next receipts, fewer than `batch` where the key is slow."""
        signing, key_id = self._signing, key.key_id
        values: list[bytes] = []
        until_s = time.monotonic() + BATCH_S
        for record in batch:
            if values and time.monotonic() > until_s:
                break
            receipt = encode_receipt(
                receipt_for(
                    record.value,
                    self._decoded(record),
                    log_id=signing.log_id,
                    seq=Seq(size),
                    previous=leaf,
                    source_topic=signing.wal_topic,
                    source=record.lsn,
                    signed_at_ns=signing.clock.now_ns(),
                    key_id=key_id,
                )
            )
            size, leaf = size + 1, leaf_hash(receipt)
            signature = key.sign(receipt_signing_input(receipt))
            values.append(
                encode_signed_receipt(
                    SignedReceipt(receipt=receipt, signature=signature)
                )
            )
        return values, ChainEnd(
            size=size, leaf=leaf, source=batch[len(values) - 1].lsn.offset
        )

    def _decoded(self, record: LogRecord) -> Envelope | None:
        try:
            return self._signing.decoder.decode(record.value or b"")
        except (UndecodableRecord, InvalidEvent, UnknownSchema) as error:
            log.warning("%s has a receipt as unreadable: %s", record.lsn, error)
            self._signing.metrics.unreadable(self.partition)
            return None

    def _may_commit(self, key: SigningKey) -> None:
        """Object where the key was replaced while the batch was signed and appended.

        The broker ends a transaction that is open for long: a receipt by the former
        key cannot come up later than that.
        """
        self._signing.failpoint("signer.appended")
        if self._signing.keys.receipt_key().key_id != key.key_id:
            raise LogUnavailable("another key signs since; the batch is signed anew")

    def _demand_no_other(self, appended: Offset) -> None:
        """Raise `AuditBroken` where somebody else's records are before ours."""
        if appended <= self._audit_end:
            return
        between = self._signing.audit.read(self.partition, self._audit_end, appended)
        for batch in between:
            raise self._broken(
                FORK, f"another writer has appended at offset {batch[0].lsn.offset}"
            )

    def _broken(self, reason: str, problem: str) -> AuditBroken:
        where = f"partition {self.partition}, seq {self._end.size}"
        return AuditBroken(where, reason, problem)


def _one_batch(records: Sequence[LogRecord], start: int) -> Sequence[LogRecord]:
    """Return from `start` on as many records as one transaction takes."""
    size = 0
    for number in range(start, min(start + BATCH_RECORDS, len(records))):
        size += len(records[number].value or b"")
        if size >= BATCH_BYTES:
            return records[start : number + 1]
    return records[start : start + BATCH_RECORDS]
