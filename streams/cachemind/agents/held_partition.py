"""One partition that this signer holds: what is delivered of it, and what is not.

A delivery only says that there is something to sign. What is delivered out of order,
twice, or not at all, is read from the log itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from cachemind.agents.own_thread import OwnThread
from cachemind.agents.signing import BATCH_RECORDS, PartitionSigner
from cachemind.core.receipt_follow import LOST
from cachemind.errors import (
    AuditBroken,
    CacheError,
    KeyUnavailable,
    LogTakenOver,
    LogUnavailable,
    OffsetOutOfRange,
)
from cachemind.ports import LogReader, LogRecord
from cachemind.ports.audit import AuditMetrics
from cachemind.types import Lsn, Offset, Partition

log = logging.getLogger(__name__)

INBOX_RECORDS: Final = 2 * BATCH_RECORDS
RETRY_S: Final = 0.5
FENCED_RETRY_S: Final = 3.0
"""After somebody else took the partition over: if it is theirs by right, the group
will have told us by then."""

BACKLOG_RECORDS: Final = BATCH_RECORDS
"""The group consumer is held back while so many are read: to deliver one more costs as
much as to sign it."""

GATHER_RECORDS: Final = 256
GATHER_S: Final = 0.02
"""After a batch so small: a transaction costs the broker, and who waits for it to
acknowledge a look-up, as much as hundreds of receipts do."""

NEAR_END_RECORDS: Final = BATCH_RECORDS
"""What the log has got meanwhile is delivered, unless it is more than this."""


class Deliveries(Protocol):
    """What delivers to this process; it may do neither of what it is asked."""

    def hold_back(self, partition: Partition) -> None:
        """Deliver nothing of `partition`."""
        ...

    async def go_on_at(self, partition: Partition, offset: Offset) -> None:
        """Deliver what is at `offset` and after."""
        ...


class HeldPartition:
    """Signs one partition until it is cancelled or its receipts cannot go on.

    Use it from the event loop; the signer works on a thread of its own.
    """

    def __init__(
        self,
        signer: PartitionSigner,
        wal: LogReader,
        metrics: AuditMetrics,
        deliveries: Deliveries,
    ) -> None:
        self.partition: Final = signer.partition
        self.begun = False
        self.broken = False
        self.waits_for_key = False
        self._signer = signer
        self._wal = wal
        self._metrics = metrics
        self._deliveries = deliveries
        self._thread = OwnThread(f"sign-{signer.partition}")
        self._inbox: deque[LogRecord] = deque()
        self._wake = asyncio.Event()
        self._unread = True
        self._holds_back = False

    @property
    def position(self) -> Offset:
        """Return the next WAL offset to sign, once it has `begun`."""
        return self._signer.position

    def offer(self, record: LogRecord) -> None:
        """Take a delivery, or note that the log has to be read: never wait."""
        if self.broken:
            return
        if self._unread or len(self._inbox) >= INBOX_RECORDS:
            self._unread = True
        else:
            self._inbox.append(record)
        self._wake.set()

    def look(self) -> None:
        """Have the log read from where the receipts end."""
        self._unread = True
        self._wake.set()

    def stop(self) -> None:
        """Begin no further batch."""
        self._signer.stop()

    async def run(self) -> None:
        """Sign until cancelled. Returns where the receipts cannot go on.

        Raises: `LogRejected`, `KeyRefused`.
        """
        self._wake.set()
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._work()
                self.waits_for_key = False
            except AuditBroken as error:
                log.critical("%s", error)
                self.broken = True
                self._metrics.stopped(self.partition, error.reason)
                return
            except (LogUnavailable, KeyUnavailable) as error:
                await self._pause(error)

    async def leave(self, timeout_s: float) -> bool:
        """Finish the batch in hand; return whether that was done in time."""
        self._signer.stop()
        done = await self._thread.finish(self._signer.close, timeout_s)
        self._thread.close()
        self._metrics.let_go(self.partition)
        return done

    async def _pause(self, error: CacheError) -> None:
        log.warning("the signer of partition %d waits: %s", self.partition, error)
        self.waits_for_key = isinstance(error, KeyUnavailable)
        fenced = isinstance(error, LogTakenOver)
        await asyncio.sleep(FENCED_RETRY_S if fenced else RETRY_S)
        self.look()

    async def _work(self) -> None:
        if not self._signer.ready:
            self._unread = True
            self._hold_back()
            await self._thread.run(self._signer.begin)
            self.begun = True
        if self._unread:
            # First: what is delivered while the log is read is kept again.
            self._unread = False
            self._inbox.clear()
            await self._catch_up()
        elif self._inbox:
            taken = [
                self._inbox.popleft()
                for _ in range(min(len(self._inbox), BATCH_RECORDS))
            ]
            await self._thread.run(self._sign, taken)
            if len(taken) < GATHER_RECORDS:
                await asyncio.sleep(GATHER_S)
        if self._inbox or self._unread:
            self._wake.set()

    async def _catch_up(self) -> None:
        if await self._thread.run(self._left) >= BACKLOG_RECORDS:
            self._hold_back()
        try:
            await self._thread.run(self._read_log)
        finally:
            if self._holds_back:
                self._holds_back = False
                position = self._signer.position
                await self._deliveries.go_on_at(self.partition, position)

    def _hold_back(self) -> None:
        if not self._holds_back:
            self._holds_back = True
            self._deliveries.hold_back(self.partition)

    def _sign(self, records: Sequence[LogRecord]) -> None:
        """Sign what follows on without a gap; else have the log read."""
        position = self._signer.position
        fresh = [r for r in records if r.lsn.offset >= position]
        expected = range(position, position + len(fresh))
        if all(r.lsn.offset == at for r, at in zip(fresh, expected, strict=True)):
            self._signer.sign(fresh)
        else:
            self._read_log()

    def _left(self) -> int:
        """Return how many offsets of the log are not looked at."""
        _, end = self._wal.bounds(self.partition)
        return end - self._signer.position

    def _read_log(self) -> None:
        """Sign all that is committed; leave to the deliveries what came meanwhile."""
        while True:
            _, end = self._wal.bounds(self.partition)
            self._read_to(end)
            if self._signer.stopping or self._left() < NEAR_END_RECORDS:
                return

    def _read_to(self, end: Offset) -> None:
        signer, start = self._signer, self._signer.position
        if start >= end:
            return
        try:
            for batch in self._wal.read(self.partition, start, end):
                signer.sign(batch)
                if signer.stopping:
                    return
        except OffsetOutOfRange as error:
            raise AuditBroken(
                str(Lsn(self.partition, start)), LOST, str(error)
            ) from error
        signer.settle(signer.position, end)
