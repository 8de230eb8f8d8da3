"""What the library needs from outside. Each port has an in-memory adapter too.

No third-party exception or type crosses a port.
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from cachemind.core.rollback import Base
from cachemind.core.rollback_report import (
    Quarantine,
    RollbackProgress,
    RollbackReport,
    RollbackStatus,
)
from cachemind.core.state import Change as Change
from cachemind.core.state import ContextRow as ContextRow
from cachemind.core.state import (
    Effect,
    Entry,
    EntryReader,
    NamespaceState,
    Step,
    VersionRow,
)
from cachemind.core.timeline import History, Span
from cachemind.events import Envelope
from cachemind.types import (
    ContextKey,
    EncoderId,
    EventId,
    ExactKey,
    Lsn,
    Namespace,
    Offset,
    Partition,
    Version,
)


class Clock(Protocol):
    """Wall time. Never trusted for order."""

    def now_ns(self) -> int:
        """Return nanoseconds since the Unix epoch (UTC)."""
        ...


# ---- the log ------------------------------------------------------------------------

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """One record as the log has it. `timestamp_ms` is Kafka's, -1 where unknown."""

    lsn: Lsn
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


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


# ---- the store ----------------------------------------------------------------------


class StoreHistory(Protocol):
    """The versions of one partition's namespaces. Raises: `StoreUnavailable`."""

    def history(self, namespace: Namespace) -> History:
        """Return the rollbacks and the head of `namespace`."""
        ...

    def versions(
        self, namespace: Namespace, first: Version, last: Version
    ) -> Sequence[VersionRow]:
        """Return the history rows in [first, last], in order."""
        ...

    def touched(
        self, namespace: Namespace, span: Span
    ) -> Mapping[Version, Sequence[ExactKey]]:
        """Return the keys whose entries each version in `span` changed."""
        ...

    def rollback_report(
        self, rollback_id: EventId, namespace: Namespace | None = None
    ) -> RollbackReport | None:
        """Return how a rollback ended, None where its record was not met yet.

        Without a `namespace`, of the first one that has a rollback with this id.
        """
        ...

    def quarantine(self, namespace: Namespace) -> Quarantine | None:
        """Return why `namespace` must not be served, None where it may be."""
        ...

    def quarantined(self) -> Sequence[Namespace]:
        """Return every namespace that must not be served, by name."""
        ...


class LiveStore(StoreHistory, Protocol):
    """What is true now, and how it came to be."""

    def namespace(self, namespace: Namespace) -> NamespaceState:
        """Return the folded state; an empty one for a namespace never seen."""
        ...

    def reader(self, namespace: Namespace) -> EntryReader:
        """Return read access to the entries of `namespace`."""
        ...


class StoreWriter(LiveStore, Protocol):
    """The owning process's view of one partition's store."""

    def applied(self) -> Offset:
        """Return the offset of the last record folded in; -1 where none."""
        ...

    def fence(self, namespace: Namespace, offset: Offset) -> None:
        """Say that state from before `offset` must not be served of `namespace`.

        Seen by every view at once. A hint in shared memory, not part of the state.
        """
        ...

    def commit(
        self, applied: Offset, steps: Mapping[Namespace, Sequence[Step]]
    ) -> None:
        """Make `steps` and the new applied offset durable, all or nothing.

        Every kept step's entries, hits, version row and last state go in with the
        journal row for `applied`; so do the report of a rollback, and the quarantine
        that it ends in or lifts. Raises: `StoreUnavailable`; nothing then changed.
        """
        ...

    def close(self) -> None:
        """Flush and release the lock."""
        ...


class StoreView(LiveStore, Protocol):
    """A reader's view of one partition's store: always a whole batch, maybe old."""

    def catch_up(self) -> Offset:
        """Show what the owner has committed since; return the applied offset.

        Raises: `StoreUnavailable`.
        """
        ...

    def changed(self) -> bool:
        """Return whether the owner seems to have committed since `catch_up`.

        A hint from shared memory, under a microsecond; catch up now and then
        without it too.
        """
        ...

    def fenced_at(self, namespace: Namespace) -> Offset:
        """Return the offset that `namespace` is fenced at, -1 where it never was.

        While `applied` is below it, nothing of the namespace may be served.
        """
        ...

    def applied(self) -> Offset:
        """Return the applied offset of what is shown; -1 where none."""
        ...

    def raw_entry(self, namespace: Namespace, key: ExactKey) -> bytes | None:
        """Return the stored bytes of an entry (see `core.entry_bytes`)."""
        ...

    def context(
        self, namespace: Namespace, context: ContextKey
    ) -> Sequence[ContextRow]:
        """Return the vectors stored under one context key."""
        ...

    def changes_since(self, offset: Offset) -> Sequence[Change] | None:
        """Return the journal after `offset`; None where it no longer reaches back."""
        ...

    def close(self) -> None:
        """Release the files."""
        ...


class StoreInspector(StoreView, Protocol):
    """What operators' tools read besides: full scans."""

    def namespaces(self) -> Sequence[NamespaceState]:
        """Return every namespace of the partition, by name."""
        ...

    def entries(self, namespace: Namespace) -> Iterable[Entry]:
        """Return every entry of a namespace, in key order: a full scan."""
        ...


# ---- checkpoints --------------------------------------------------------------------


class Checkpoints(Protocol):
    """The checkpoints of one partition's store, to rebuild the past from."""

    def bases(self, namespace: Namespace) -> Sequence[Base]:
        """Return what each checkpoint holds of `namespace`; those without it not.

        Whether their files are sound is found out by `open`.
        """
        ...

    def open(self, offset: Offset) -> AbstractContextManager[StoreInspector]:
        """Open the checkpoint at `offset` to read, and keep it while it is open.

        The inspector shows the checkpoint at once. Every file is verified first.
        Raises: `CheckpointRefused`, which names what is wrong.
        """
        ...


class CheckpointMaker(Protocol):
    """Makes and thins out the checkpoints of one partition; the fold's thread only."""

    def make(self, now_ns: int) -> Offset:
        """Make a checkpoint of what is committed; return its offset.

        Raises: `StoreUnavailable`.
        """
        ...

    def prune(self, now_ns: int) -> Sequence[Offset]:
        """Remove what retention gives up and nobody holds; return what went.

        Raises: `StoreUnavailable`.
        """
        ...


class RollbackProgressBoard(Protocol):
    """Where the fold says how far the rollback is that it works on."""

    def show(self, progress: RollbackProgress) -> None:
        """Replace what was shown."""
        ...

    def clear(self) -> None:
        """Show nothing: no rollback is running."""
        ...


# ---- encoder and upstream -----------------------------------------------------------


class Embedder(Protocol):
    """Turns text into a vector. One thread at a time."""

    @property
    def encoder_id(self) -> EncoderId:
        """Return a name that changes whenever the vectors do."""
        ...

    @property
    def dimensions(self) -> int:
        """Return the length of a vector."""
        ...

    def embed(self, text: str) -> bytes | None:
        """Return the normalised float16 little-endian vector of `text`.

        None where a vector could not tell the text from another one: past the
        encoder's window (256 word pieces), no word piece at all, or words outside
        of its vocabulary.
        Raises: `EmbeddingUnavailable`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamRequest:
    """A request exactly as it should reach the model server.

    `target` is path and query as received. Header names are lower-case. A body that
    is an iterator is sent as it comes.
    """

    method: str
    target: str
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes | AsyncIterator[bytes]


class UpstreamResponse(Protocol):
    """An answer whose body is still on its way."""

    @property
    def status(self) -> int:
        """Return the HTTP status."""
        ...

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        """Return the headers as received, hop-by-hop ones removed."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body's bytes untouched. Raises: `UpstreamUnavailable` when cut."""
        ...


class Upstream(Protocol):
    """The model server."""

    def send(
        self, request: UpstreamRequest
    ) -> AbstractAsyncContextManager[UpstreamResponse]:
        """Return a context manager that yields once the answer's head is in.

        Leaving it early closes the connection. Raises: `UpstreamUnavailable`;
        `InvalidRequest` where a header cannot be sent.
        """
        ...

    async def close(self) -> None:
        """Close idle connections."""
        ...
