"""The receipts of one partition as the cutter follows them."""

from __future__ import annotations

import logging

from cachemind.agents.audit_reading import (
    ReadReceipt,
    last_records,
    offset_before,
    receipt_of,
)
from cachemind.core.cutting import GrowingHead
from cachemind.core.receipt_follow import LOST, NO_SOURCE, ChainEnd, ReceiptChain
from cachemind.errors import AuditBroken
from cachemind.ports import LogReader, LogRecord
from cachemind.ports.audit import AuditMetrics
from cachemind.receipts import LogId, PartitionHead
from cachemind.types import Offset, Partition

log = logging.getLogger(__name__)


class FollowedReceipts:
    """Grows the head of one partition from the last cut on.

    What does not follow on is reported once; the head then stays where it is, and
    nothing beyond is covered by any cut.
    """

    def __init__(
        self,
        log_id: LogId,
        wal_topic: str,
        head: PartitionHead,
        metrics: AuditMetrics,
    ) -> None:
        """Begin at the head in the last cut. Raises: `AuditBroken`."""
        self.partition = Partition(head.partition)
        self.broken = False
        self._log_id = log_id
        self._wal_topic = wal_topic
        self._metrics = metrics
        self._covered = head.size
        self._growing = GrowingHead(head)
        self._chain: ReceiptChain | None = None

    @property
    def waiting(self) -> int:
        """Return how many receipts no cut covers yet."""
        return self._growing.size - self._covered

    def find(self, audit: LogReader) -> Offset:
        """Return from which offset on to follow.

        That is the last receipt under the cut, which the next one names.
        Raises: `LogUnavailable`.
        """
        try:
            records, _, end = last_records(audit, self.partition)
            seqs = [receipt_of(record).place.seq for record in records]
            there = max(seqs, default=-1) + 1
            if there < self._covered:
                raise AuditBroken(
                    f"partition {self.partition}",
                    LOST,
                    f"the last cut is over {self._covered} receipts, found {there}",
                )
            return offset_before(audit, self.partition, max(self._covered - 1, 0))
        except AuditBroken as error:
            self._give_up(error)
            return end

    def take(self, record: LogRecord) -> ReadReceipt | None:
        """Return the receipt in `record` where it is new to the last cut.

        Raises: `AuditBroken` where the head is not what its receipts give.
        """
        if self.broken:
            return None
        try:
            read = receipt_of(record)
            new = self._follows(read)
        except AuditBroken as error:
            self._give_up(error)
            return None
        if not new or read.place.seq < self._covered:
            return None
        self._growing.append(read.content, read.leaf)
        return read

    def head(self) -> PartitionHead:
        """Return the head for the next cut. Raises: `AuditBroken`."""
        return self._growing.head()

    def covered(self, head: PartitionHead) -> None:
        """Note that a cut with `head` is on the log."""
        self._growing.rest_on(head)
        self._covered = head.size

    def _follows(self, read: ReadReceipt) -> bool:
        if self._chain is None:
            seq = read.place.seq
            if seq > self._covered:
                raise AuditBroken(
                    f"partition {self.partition}, seq {seq}",
                    LOST,
                    f"expected a receipt below {self._covered + 1} to begin with",
                )
            before = ChainEnd(size=seq, leaf=None, source=NO_SOURCE)
            self._chain = ReceiptChain(
                self._log_id, self.partition, self._wal_topic, before
            )
        return self._chain.take(read.place, read.leaf)

    def _give_up(self, error: AuditBroken) -> None:
        log.critical("no cut covers more of partition %d: %s", self.partition, error)
        self.broken = True
        self._metrics.stopped(self.partition, error.reason)
