"""A topic in memory that behaves like Kafka, for unit tests and simulation."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from cachemind.core.partitioner import partition_of
from cachemind.core.topics import MAX_RECORD_BYTES
from cachemind.errors import LogRejected, LogUnavailable, OffsetOutOfRange
from cachemind.ports import Clock, Headers, LogRecord
from cachemind.types import Lsn, Offset, Partition

_BATCH_RECORDS: Final = 1_000
_FOLLOW_WAIT_S: Final = 0.05
_NS_PER_MS: Final = 1_000_000


@dataclass(slots=True)
class _Partition:
    """Records by ascending offset; [first, end) is what may be asked for."""

    first: int = 0
    end: int = 0
    records: list[LogRecord] = field(default_factory=list)

    def between(self, start: int, end: int) -> Sequence[LogRecord]:
        low = bisect_left(self.records, start, key=_offset)
        return self.records[low : bisect_left(self.records, end, key=_offset)]


@dataclass(frozen=True, slots=True)
class HeldAppend:
    """An append on its way."""

    writer: MemoryLogWriter
    future: Future[Lsn]
    key: bytes
    value: bytes | None
    headers: Headers


class MemoryLog:
    """One topic: what a test does to it; writers and readers do the rest.

    A future is set, and its callbacks run, on the thread that appends or releases:
    a test sees the outcome at once. `clock` gives records their timestamp.
    """

    def __init__(
        self,
        partitions: int,
        clock: Clock,
        max_record_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        self._partitions = [_Partition() for _ in range(partitions)]
        self._clock = clock
        self._max_record_bytes = max_record_bytes
        self._changed = threading.Condition(threading.RLock())
        self._held: list[HeldAppend] = []
        self._holding = False
        self._outage: str | None = None

    def writer(self) -> MemoryLogWriter:
        """Return a new `LogWriter` on this topic."""
        return MemoryLogWriter(self)

    def reader(self) -> MemoryLogReader:
        """Return a new `LogReader` on this topic."""
        return MemoryLogReader(self)

    def go_away(self, reason: str = "the broker is away") -> None:
        """Refuse appends and reads until `come_back`."""
        with self._changed:
            self._outage = reason

    def come_back(self) -> None:
        """End the outage."""
        with self._changed:
            self._outage = None
            self._changed.notify_all()

    def hold(self) -> None:
        """Keep appends in flight: their futures stay open until `release`."""
        with self._changed:
            self._holding = True

    def release(self) -> None:
        """Acknowledge what is in flight, in order, and hold nothing any more."""
        with self._changed:
            self._holding = False
            held, self._held = self._held, []
            settled = [(h, self._settle(h)) for h in held]
        for waiting, outcome in settled:
            _resolve(waiting.future, outcome)

    @property
    def held(self) -> int:
        """Return how many appends are kept in flight."""
        return len(self._held)

    def append_at(
        self, partition: Partition, records: Sequence[tuple[bytes, bytes, Headers]]
    ) -> Sequence[Lsn]:
        """Return where (key, value, headers) are now, whatever the keys.

        Raises: `LogUnavailable`.
        """
        with self._changed:
            log = self._at(partition)
            first = log.end
            for key, value, headers in records:
                log.records.append(
                    LogRecord(
                        lsn=Lsn(partition, Offset(log.end)),
                        key=key,
                        value=value,
                        headers=headers,
                        timestamp_ms=self._clock.now_ns() // _NS_PER_MS,
                    )
                )
                log.end += 1
            self._changed.notify_all()
        return [Lsn(partition, Offset(at)) for at in range(first, log.end)]

    def leave_gap(self, partition: Partition, offsets: int = 1) -> None:
        """Use up offsets without a record, as a transaction marker does."""
        with self._changed:
            self._partitions[partition].end += offsets
            self._changed.notify_all()

    def delete_before(self, partition: Partition, offset: Offset) -> None:
        """Drop the records below `offset`, as retention does."""
        with self._changed:
            log = self._partitions[partition]
            log.first = max(log.first, min(offset, log.end))
            log.records = list(log.between(log.first, log.end))

    # ---- for writers and readers ---------------------------------------------------

    def append(self, record: HeldAppend) -> None:
        """Settle `record`, or keep it while the log is held."""
        with self._changed:
            if self._holding and self._outage is None:
                self._held.append(record)
                return
            outcome = self._settle(record)
        _resolve(record.future, outcome)

    def give_up(self, writer: MemoryLogWriter) -> int:
        """Fail what `writer` has in flight; return how much that was."""
        with self._changed:
            lost = [held for held in self._held if held.writer is writer]
            self._held = [held for held in self._held if held.writer is not writer]
        for held in lost:
            _resolve(held.future, LogUnavailable("the writer is closed"))
        return len(lost)

    def bounds(self, partition: Partition) -> tuple[Offset, Offset]:
        """Return (first readable offset, offset after the last record)."""
        with self._changed:
            if self._outage is not None:
                raise LogUnavailable(self._outage)
            log = self._at(partition)
            return Offset(log.first), Offset(log.end)

    def between(
        self, partition: Partition, start: Offset, end: Offset
    ) -> Sequence[LogRecord]:
        """Return the first records in [start, end), as many as a batch holds.

        Raises: `OffsetOutOfRange`; `LogUnavailable`, also where the log ends
        before `end`: nobody would append while the reader waits.
        """
        with self._changed:
            log = self._at(partition)
            self._raise_if_outside(partition, start)
            if end > log.end:
                raise LogUnavailable(f"[{partition}] ends at {log.end}, not {end}")
            return log.between(start, end)[:_BATCH_RECORDS]

    def news(self, reached: dict[Partition, Offset]) -> Sequence[LogRecord]:
        """Return what came after `reached`, and move it on; wait a moment if none."""
        with self._changed:
            batch = self._news(reached)
            if not batch:
                self._changed.wait(_FOLLOW_WAIT_S)
                batch = self._news(reached)
            return batch

    def _news(self, reached: dict[Partition, Offset]) -> Sequence[LogRecord]:
        if self._outage is not None:
            return []
        batch: list[LogRecord] = []
        for partition, at in reached.items():
            self._raise_if_outside(partition, at)
            log = self._partitions[partition]
            batch += log.between(at, log.end)
            reached[partition] = Offset(log.end)
        return batch

    def _settle(self, record: HeldAppend) -> Lsn | LogUnavailable | LogRejected:
        """Put a record on its partition. Call under the lock."""
        if self._outage is not None:
            return LogUnavailable(f"append: {self._outage}")
        size = len(record.key) + len(record.value or b"")
        if size > self._max_record_bytes:
            return LogRejected(f"append: {size} bytes are more than the topic takes")
        partition = partition_of(record.key, len(self._partitions))
        log = self._partitions[partition]
        lsn = Lsn(partition, Offset(log.end))
        log.records.append(
            LogRecord(
                lsn=lsn,
                key=record.key,
                value=record.value,
                headers=record.headers,
                timestamp_ms=self._clock.now_ns() // _NS_PER_MS,
            )
        )
        log.end += 1
        self._changed.notify_all()
        return lsn

    def _at(self, partition: Partition) -> _Partition:
        if self._outage is not None:
            raise LogUnavailable(self._outage)
        if not 0 <= partition < len(self._partitions):
            raise LogUnavailable(f"the topic has no partition {partition}")
        return self._partitions[partition]

    def _raise_if_outside(self, partition: Partition, offset: Offset) -> None:
        log = self._partitions[partition]
        if not log.first <= offset <= log.end:
            raise OffsetOutOfRange(f"[{partition}]", offset, log.first, log.end)


class MemoryLogWriter:
    """A `LogWriter` on a `MemoryLog`."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._closed = False

    def append(self, key: bytes, value: bytes | None, headers: Headers) -> Future[Lsn]:
        """Return a future of the record's LSN; see `LogWriter`."""
        future: Future[Lsn] = Future()
        future.set_running_or_notify_cancel()
        if self._closed:
            future.set_exception(LogUnavailable("the writer is closed"))
        else:
            self._log.append(HeldAppend(self, future, key, value, headers))
        return future

    def close(self, timeout_s: float) -> int:
        """Give up what the log holds; return how much. Never waits."""
        self._closed = True
        return self._log.give_up(self)


class MemoryLogReader:
    """A `LogReader` on a `MemoryLog`."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    def bounds(self, partition: Partition) -> tuple[Offset, Offset]:
        """Return (first readable offset, offset after the last record)."""
        return self._log.bounds(partition)

    def read(
        self, partition: Partition, start: Offset, end: Offset
    ) -> Iterable[Sequence[LogRecord]]:
        """Yield batches with every record in [start, end), in order.

        Raises: `OffsetOutOfRange`, `LogUnavailable`.
        """
        while start < end:
            batch = self._log.between(partition, start, end)
            if not batch:
                return
            yield batch
            start = Offset(batch[-1].lsn.offset + 1)

    def follow(
        self, starts: Mapping[Partition, Offset], should_stop: Callable[[], bool]
    ) -> Iterator[Sequence[LogRecord]]:
        """Yield what is and will be on the partitions from `starts` on, until told.

        An empty batch is yielded when nothing came for a moment.
        Raises: `OffsetOutOfRange`.
        """
        reached = dict(starts)
        while not should_stop():
            yield self._log.news(reached)

    def close(self) -> None:
        """Leave the log; nothing is held."""


def _offset(record: LogRecord) -> int:
    return record.lsn.offset


def _resolve(future: Future[Lsn], outcome: Lsn | LogUnavailable | LogRejected) -> None:
    if isinstance(outcome, Lsn):
        future.set_result(outcome)
    else:
        future.set_exception(outcome)
