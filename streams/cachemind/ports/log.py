"""The log: appended to, read by position, followed, and its groups' offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from cachemind.core.rollback_report import RollbackStatus
from cachemind.core.state import Effect
from cachemind.events import Envelope
from cachemind.types import Lsn, Offset, Partition

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """One record as the log has it. `timestamp_ms` is Kafka's, -1 where unknown."""

    lsn: Lsn
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int

    @property
    def size_bytes(self) -> int:
        """Return what key, value and headers take."""
        headers = sum(len(name) + len(value) for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


class LogWriter(Protocol):
    """Appends to one topic; safe to call from any thread."""

    def append(self, key: bytes, value: bytes, headers: Headers) -> Future[Lsn]:
        """Return at once with a future of the LSN, set once durable on all ISRs.

        The future raises `LogUnavailable` (a retry may put the record on the log
        twice, and the fold must not care) or `LogRejected` (never retry). A record
        is never reordered with one of the same key appended before it. Callbacks
        of the future run on the writer's own thread.
        """
        ...

    def close(self, timeout_s: float) -> int:
        """Flush for at most `timeout_s`; return the number of records given up."""
        ...


class LogReader(Protocol):
    """Reads partitions of one topic by position, in bulk, outside of any group."""

    def bounds(self, partition: Partition) -> tuple[Offset, Offset]:
        """Return (first readable offset, offset after the last committed record).

        Raises: `LogUnavailable`.
        """
        ...

    def read(
        self, partition: Partition, start: Offset, end: Offset
    ) -> Iterable[Sequence[LogRecord]]:
        """Yield batches with every committed record in [start, end), in order.

        Ends by position, so control records and compaction gaps never hang it.
        Raises: `LogUnavailable`, also when a record below `start` was asked for
        that retention has deleted.
        """
        ...

    def close(self) -> None:
        """Leave the log."""
        ...


class LogTimes(Protocol):
    """Finds places on a log by time."""

    def first_after(self, partition: Partition, time_ms: int) -> Offset:
        """Return where the records after `time_ms` begin, by Kafka's own timestamps.

        The end where none is. Units: milliseconds since the Unix epoch (UTC).
        Raises: `LogUnavailable`.
        """
        ...


class LogFollower(Protocol):
    """Reads the live end of one topic, outside of any group."""

    def follow(
        self, starts: Mapping[Partition, Offset], should_stop: Callable[[], bool]
    ) -> Iterator[Sequence[LogRecord]]:
        """Yield what is and will be on the partitions from `starts` on, until told.

        In order within a partition. An outage is waited out; an empty batch is
        yielded now and then while nothing comes, so that the caller can look up.
        Raises: `OffsetOutOfRange`, `LogRejected`.
        """
        ...


class GroupOffsets(Protocol):
    """The committed offsets of one consumer group on one topic: hints, never truth."""

    def committed(
        self, partitions: Sequence[Partition]
    ) -> Mapping[Partition, Offset | None]:
        """Return the next offset that the group would read, None where none is set.

        Raises: `LogUnavailable`.
        """
        ...

    def commit(self, offsets: Mapping[Partition, Offset]) -> None:
        """Set the next offset to read of each partition, while the group is empty.

        Raises: `LogUnavailable`; `LogRejected` where the group has a live member
        or the principal may not.
        """
        ...

    def close(self) -> None:
        """Leave the cluster."""
        ...


class OffsetMemory(Protocol):
    """What this host last committed for its group; never above what Kafka has."""

    def load(self) -> Mapping[Partition, Offset]:
        """Return the next offset to read of each partition, as last saved.

        Raises: `StoreUnavailable`, `StoreMismatch`.
        """
        ...

    def save(self, offsets: Mapping[Partition, Offset]) -> None:
        """Replace what is remembered. Raises: `StoreUnavailable`."""
        ...


class FoldMetrics(Protocol):
    """Where the materializer reports what it does; called from several threads."""

    def folded(self, partition: Partition, kind: str, effect: Effect) -> None:
        """One event of `kind` (see `core.fold.kind_of`) had `effect`."""
        ...

    def dead_lettered(self, partition: Partition, reason: str) -> None:
        """One record went to the dead-letter topic; `reason` is one of few words."""
        ...

    def fold_lag(self, partition: Partition, records: int) -> None:
        """`records` at most are committed on the log and not folded yet."""
        ...

    def rolled_back(self, partition: Partition, status: RollbackStatus) -> None:
        """One rollback ended; a quarantine is something to wake somebody for."""
        ...

    def quarantined(self, partition: Partition, namespaces: int) -> None:
        """So many namespaces are not to be served on this host."""
        ...

    def halted(self, partition: Partition, *, stands: bool) -> None:
        """The fold of `partition` stands at a record, or goes on again."""
        ...

    def progressed(self, partition: Partition, applied: Offset) -> None:
        """The store now holds everything up to `applied`."""
        ...


class Decoder(Protocol):
    """The reading half of the codec."""

    def decode(self, record: bytes) -> Envelope:
        """Return the event.

        Raises: `UndecodableRecord`, `UnknownSchema`, `InvalidEvent`.
        """
        ...


class SchemaIds(Protocol):
    """A schema registry's ids for one subject. Safe to call from any thread."""

    def id_for(self, schema_text: str) -> int:
        """Return the id of a schema, registering it where it is new.

        Raises: `LogUnavailable`; `LogRejected` where the registry refuses the
        schema (incompatible, not authorised), which no retry changes.
        """
        ...

    def schema_for(self, schema_id: int) -> str:
        """Return the schema's text.

        Raises: `UnknownSchema` for an id never given; `LogUnavailable`;
        `LogRejected` where the registry refuses to answer.
        """
        ...
