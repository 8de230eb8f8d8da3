"""What the library needs from outside. Each port has an in-memory adapter too.

No third-party exception or type crosses a port.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from cachemind.core.state import Entry, EntryReader, NamespaceState, Step, VersionRow
from cachemind.types import (
    ContextKey,
    EncoderId,
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


# ---- the store ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One journal line: an entry was stored (`present`) or went away."""

    namespace: Namespace
    context_key: ContextKey
    exact_key: ExactKey
    present: bool


class StoreWriter(Protocol):
    """The owning process's view of one partition's store."""

    def applied(self) -> Offset:
        """Return the offset of the last record folded in; -1 where none."""
        ...

    def namespace(self, namespace: Namespace) -> NamespaceState:
        """Return the folded state; an empty one for a namespace never seen."""
        ...

    def reader(self, namespace: Namespace) -> EntryReader:
        """Return read access to the entries of `namespace`."""
        ...

    def commit(
        self, applied: Offset, steps: Mapping[Namespace, Sequence[Step]]
    ) -> None:
        """Make `steps` and the new applied offset durable, all or nothing.

        Every kept step's entries, hits, version row and last state go in with the
        journal row for `applied`. Raises: `StoreUnavailable`; nothing then changed.
        """
        ...

    def close(self) -> None:
        """Flush and release the lock."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextRow:
    """What the vector index needs of an entry. `embedding` is float16 bytes."""

    exact_key: ExactKey
    embedding: bytes
    expires_at_ns: int


class StoreView(Protocol):
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

    def applied(self) -> Offset:
        """Return the applied offset of what is shown; -1 where none."""
        ...

    def raw_entry(self, namespace: Namespace, key: ExactKey) -> bytes | None:
        """Return the stored bytes of an entry (see `core.entry_bytes`)."""
        ...

    def namespace(self, namespace: Namespace) -> NamespaceState:
        """Return the folded state; an empty one for a namespace never seen."""
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
    """What operators' tools read besides: full scans and history."""

    def namespaces(self) -> Sequence[NamespaceState]:
        """Return every namespace of the partition, by name."""
        ...

    def entries(self, namespace: Namespace) -> Iterable[Entry]:
        """Return every entry of a namespace, in key order: a full scan."""
        ...

    def versions(
        self, namespace: Namespace, first: Version, last: Version
    ) -> Sequence[VersionRow]:
        """Return the history rows in [first, last]."""
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

        None where the text is past the encoder's window (256 word pieces): two
        long texts that share a beginning would get the same vector.
        Raises: `EmbeddingUnavailable`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamRequest:
    """A request exactly as it should reach the model server.

    `target` is path and query as received. Header names are lower-case.
    """

    method: str
    target: str
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes


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

        Leaving it early closes the connection. Raises: `UpstreamUnavailable`.
        """
        ...

    async def close(self) -> None:
        """Close idle connections."""
        ...
