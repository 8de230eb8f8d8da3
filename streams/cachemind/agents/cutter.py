"""Cuts: signed statements of all receipts so far. One process at a time makes them.

1. The topic of cuts is taken over, which ends every other cutter, and read to its end:
   each leaf must follow on, and the last checkpoint must be a log key's over all of
   them. What this host has read before, it need not read again (see `cuts_resume`).
2. The receipts are followed from the last cut on. They must follow on, too; a
   partition where they do not stays where it is, and the others go on.
3. Key events on the log, for each has a receipt, become leaves.
4. Whenever a cut is due, its heads are computed twice (see `core.cutting`), signed and
   appended.

After an error of the log all of that is done again, so it never matters whether a
commit that failed was one. What is on the log and does not hold ends the cutter.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from cachemind.agents.audit_reading import ReadReceipt
from cachemind.agents.cut_note import signed_cut
from cachemind.agents.cuts_log import CutsLog, VerifyKeyEvent
from cachemind.agents.cuts_resume import CUTS_PARTITION, begun, check_last
from cachemind.agents.followed_receipts import FollowedReceipts
from cachemind.agents.key_watch import FollowedLog
from cachemind.codec.cuts import encode_cuts_record
from cachemind.core.cutting import Pace, Waiting, first_heads, is_due, next_cut
from cachemind.core.receipt_follow import LOST
from cachemind.core.signature_check import SignatureCheck
from cachemind.errors import (
    AuditBroken,
    CacheError,
    KeyRefused,
    KeyUnavailable,
    LogError,
    LogRejected,
    LogUnavailable,
    MalformedNote,
)
from cachemind.ports import Clock, LogRecord, SigningKey
from cachemind.ports.audit import AuditMetrics, HeldKeys, HostMemory, SoleWriter
from cachemind.receipts import CutsRecord, KeyRole, LogId, PartitionHead
from cachemind.types import Offset, Partition

log = logging.getLogger(__name__)

RETRY_S: Final = 0.5
NS_PER_S: Final = 1_000_000_000
KEY_RETRY_NS: Final = 2 * NS_PER_S
FULL_BATCH: Final = 1000
"""So many receipts at once: more of them are on the log already."""

NO_KEY: Final = "no-key"
Failpoint = Callable[[str], None]


class FindKeyEvent(Protocol):
    """Returns the leaf of the key event that a receipt is about.

    None where it is about something else, or the event does not hold.
    Raises: `LogUnavailable`.
    """

    def __call__(self, read: ReadReceipt, /) -> bytes | None:
        """Return the leaf."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutting:
    """What a cutter stands on. `cuts`, `audit` and `writer` are its own."""

    log_id: LogId
    partitions: int
    wal_topic: str
    cuts: FollowedLog
    audit: FollowedLog
    writer: SoleWriter
    find_key_event: FindKeyEvent
    verify: VerifyKeyEvent
    check: SignatureCheck
    held: HeldKeys
    memory: HostMemory
    clock: Clock
    metrics: AuditMetrics
    failpoint: Failpoint
    pace: Pace = field(default_factory=Pace)


class Cutter:
    """Makes cuts until it is told to stop. On a thread of its own."""

    def __init__(self, cutting: Cutting) -> None:
        self._cutting = cutting

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Cut until told to stop, or until the log does not hold.

        An outage is waited out. Raises: `LogRejected`.
        """
        while not should_stop():
            try:
                Session(self._cutting).run(should_stop)
            except LogRejected:
                raise
            except LogError as error:
                log.warning("the cutter waits for the log: %s", error)
                time.sleep(RETRY_S)
            except (AuditBroken, MalformedNote) as error:
                reason = getattr(error, "reason", "malformed-note")
                log.critical("no more cuts: %s", error)
                self._cutting.metrics.cutter_stopped(reason)
                return
            finally:
                self._cutting.writer.close()


class Session:
    """One run of the cutter, from taking over to the first error of the log."""

    def __init__(self, cutting: Cutting) -> None:
        self._of = cutting
        self._log = CutsLog(cutting.log_id, cutting.verify)
        self._end = Offset(0)
        self._parts: list[FollowedReceipts] = []
        self._events: list[bytes] = []
        self._since_ns: int | None = None
        self._last_cut_ns: int | None = None
        self._urgent = False
        self._not_before_ns = 0
        self._said = ""

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Cut until told to stop.

        Raises: `AuditBroken`, `MalformedNote`, `LogError`.
        """
        self._of.writer.take_over()
        self._of.failpoint("cutter.taken-over")
        self._read_cuts()
        starts = self._begin_receipts()
        for batch in self._of.audit.follow(starts, should_stop):
            self._take(batch)
            if self._events:
                self._append_events()
            if self._is_due(caught_up=len(batch) < FULL_BATCH):
                self._cut()

    # ---- the beginning --------------------------------------------------------------

    def _read_cuts(self) -> None:
        """Read the log of cuts to its end, once nobody else adds to it any more."""
        cutting = self._of
        first, self._end = cutting.cuts.bounds(CUTS_PARTITION)
        if first > 0:
            raise AuditBroken("the cuts", LOST, f"what is below {first} was deleted")
        self._log, start = begun(
            cutting.log_id,
            cutting.cuts,
            cutting.memory,
            cutting.verify,
            cutting.check,
        )
        for batch in cutting.cuts.read(CUTS_PARTITION, start, self._end):
            for record in batch:
                where = f"cuts offset {record.lsn.offset}"
                self._log.take(record.value or b"", where)
        self._check_partitions()
        check_last(self._log, cutting.check)

    def _check_partitions(self) -> None:
        last = self._log.last
        if last is not None and len(last.cut.heads) != self._of.partitions:
            raise AuditBroken(
                f"cut {last.cut.index}",
                LOST,
                f"expected {self._of.partitions} partitions, "
                f"found {len(last.cut.heads)}",
            )

    def _begin_receipts(self) -> dict[Partition, Offset]:
        last = self._log.last
        heads = first_heads(self._of.partitions) if last is None else last.cut.heads
        self._parts = [
            FollowedReceipts(
                self._of.log_id, self._of.wal_topic, head, self._of.metrics
            )
            for head in heads
        ]
        return {part.partition: part.find(self._of.audit) for part in self._parts}

    # ---- receipts -------------------------------------------------------------------

    def _take(self, batch: Sequence[LogRecord]) -> None:
        for record in batch:
            read = self._parts[record.lsn.partition].take(record)
            if read is None:
                continue
            if self._since_ns is None:
                self._since_ns = time.monotonic_ns()
            leaf = self._of.find_key_event(read)
            if leaf is not None and leaf not in self._log.key_events:
                self._events.append(leaf)

    def _append_events(self) -> None:
        """Make the new key events leaves: whatever is signed next goes by them."""
        events = list(dict.fromkeys(self._events))
        values = [
            encode_cuts_record(CutsRecord(leaf=leaf, checkpoint="")) for leaf in events
        ]
        self._append(values)
        self._of.failpoint("cutter.events-committed")
        self._events.clear()
        self._urgent, self._not_before_ns = True, 0

    # ---- cuts -----------------------------------------------------------------------

    def _is_due(self, *, caught_up: bool) -> bool:
        now_ns = time.monotonic_ns()
        waiting = Waiting(
            receipts=sum(part.waiting for part in self._parts),
            since_ns=self._since_ns,
            last_cut_ns=self._last_cut_ns,
            caught_up=caught_up,
            urgent=self._urgent,
        )
        return now_ns >= self._not_before_ns and is_due(self._of.pace, waiting, now_ns)

    def _cut(self) -> None:
        heads = tuple(part.head() for part in self._parts)
        try:
            value = self._signed(heads)
        except (KeyUnavailable, KeyRefused) as error:
            self._put_off(error)
            return
        self._of.failpoint("cutter.signed")
        self._append([value])
        self._of.failpoint("cutter.committed")
        self._note(heads)

    def _signed(self, heads: tuple[PartitionHead, ...]) -> bytes:
        cutting, last = self._of, self._log.last
        # A clock that was set back is no reason to say that time did not go on.
        at_ns = max(cutting.clock.now_ns(), 0 if last is None else last.cut.at_ns)
        cut = next_cut(cutting.log_id, self._log.leaves, heads, at_ns)
        return signed_cut(cut, self._log.leaves, self._log_key(), cutting.check)

    def _log_key(self) -> SigningKey:
        if not any(one.role is KeyRole.LOG for one in self._log.keys.tenures()):
            raise KeyRefused("for cuts", "none was added to the log yet")
        may_sign = self._log.keys.signers(KeyRole.LOG)
        for tenure in may_sign:
            key = self._of.held.find(KeyRole.LOG, tenure.key_id)
            if key is not None:
                return key
        ids = ", ".join(tenure.key_id for tenure in may_sign) or "none"
        raise KeyRefused(
            "for cuts", f"may sign: {ids}; none of them is held by this process"
        )

    def _put_off(self, error: CacheError) -> None:
        self._not_before_ns = time.monotonic_ns() + KEY_RETRY_NS
        if str(error) != self._said:
            self._said = str(error)
            log.warning("no cut is signed for now: %s", error)
        self._of.metrics.cutter_stopped(NO_KEY)

    def _append(self, values: Sequence[bytes]) -> None:
        """Append leaves, and take them in.

        Raises: `LogUnavailable` also where somebody else appended before them: what is
        there then shows when all of it is read again.
        """
        name = self._of.log_id.encode()
        lsns = self._of.writer.append_all(
            [(name, value, ()) for value in values],
            lambda: self._of.failpoint("cutter.appended"),
        )
        if lsns[0].offset > self._end:
            raise LogUnavailable("another writer has appended to the topic of cuts")
        # The mark of the commit takes an offset.
        self._end = Offset(lsns[-1].offset + 2)
        for value, lsn in zip(values, lsns, strict=True):
            self._log.take(value, f"cuts offset {lsn.offset}")

    def _note(self, heads: Sequence[PartitionHead]) -> None:
        """Note that a cut with `heads` is on the log."""
        now_ns, since_ns = time.monotonic_ns(), self._since_ns
        receipts = sum(part.waiting for part in self._parts)
        for part, head in zip(self._parts, heads, strict=True):
            part.covered(head)
        took_s = 0.0 if since_ns is None else (now_ns - since_ns) / NS_PER_S
        self._of.metrics.cut(receipts, took_s)
        self._since_ns, self._last_cut_ns = None, now_ns
        self._urgent, self._said = False, ""
