"""Reading a store's rows as values, over any ordered map of bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from cachemind.adapters import store_rows
from cachemind.adapters.store_journal import changes_since
from cachemind.core import entry_bytes, history_bytes, state_bytes
from cachemind.core.collecting import Held
from cachemind.core.digest import EMPTY_DIGEST, add
from cachemind.core.requested import Head, Request, Requests
from cachemind.core.rollback_report import Quarantine, RollbackReport
from cachemind.core.state import (
    Change,
    ContextRow,
    Entry,
    EntryReader,
    Hits,
    NamespaceState,
    VersionRow,
)
from cachemind.core.timeline import Branch, History, Span
from cachemind.types import (
    HASH_BYTES,
    ContextKey,
    EventId,
    ExactKey,
    Namespace,
    Offset,
    Version,
)


class Rows(Protocol):
    """An ordered map of bytes at one moment. Raises: `StoreUnavailable`."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value at `key`."""
        ...

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows with keys in [first, end), in order."""
        ...


class NoRows:
    """A store with nothing in it."""

    def get(self, key: bytes) -> bytes | None:
        """Return None."""
        del key
        return None

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield nothing."""
        del first, end
        return iter(())


class LiveRows(ABC):
    """`LiveStore` over whatever rows there are at the moment of each call."""

    @abstractmethod
    def rows(self) -> Rows:
        """Return the rows to read from now. Raises: `StoreUnavailable`."""

    def namespace(self, namespace: Namespace) -> NamespaceState:
        """Return the folded state; an empty one for a namespace never seen."""
        return read_state(self.rows(), namespace)

    def namespaces(self) -> Sequence[NamespaceState]:
        """Return every namespace of the partition, by name."""
        found = scan_prefix(self.rows(), store_rows.STATE)
        states = [state_bytes.decode_state(raw) for _, raw in found]
        return sorted(states, key=lambda state: state.namespace)

    def reader(self, namespace: Namespace) -> EntryReader:
        """Return read access to the entries as they are now, whatever comes later."""
        return RowEntries(self.rows(), namespace)

    def requests(self, namespace: Namespace) -> Requests:
        """Return the requests that are done as of now, whatever comes later."""
        return RowRequests(self.rows(), namespace)

    def history(self, namespace: Namespace) -> History:
        """Return the rollbacks and the head of `namespace`."""
        rows = self.rows()
        head = read_state(rows, namespace).version
        prefix = store_rows.in_namespace(store_rows.TARGET, namespace)
        branches = [
            Branch(store_rows.version_of(key), history_bytes.decode_target(raw))
            for key, raw in scan_prefix(rows, prefix)
        ]
        return History(tuple(branches), head)

    def versions(
        self, namespace: Namespace, first: Version, last: Version
    ) -> Sequence[VersionRow]:
        """Return the history rows in [first, last], in order."""
        return [
            state_bytes.decode_version(store_rows.version_of(key), raw)
            for key, raw in self.rows().scan(
                store_rows.version_key(namespace, max(first, 0)),
                store_rows.version_key(namespace, max(last + 1, 0)),
            )
        ]

    def touched(
        self, namespace: Namespace, span: Span
    ) -> Mapping[Version, Sequence[ExactKey]]:
        """Return the keys whose entries each version in `span` changed."""
        found = self.rows().scan(
            store_rows.touched_key(namespace, span.first),
            store_rows.touched_key(namespace, span.last + 1),
        )
        return {
            store_rows.version_of(key): history_bytes.decode_touched(raw)
            for key, raw in found
        }

    def rollback_report(
        self, rollback_id: EventId, namespace: Namespace | None = None
    ) -> RollbackReport | None:
        """Return how a rollback ended, None where its record was not met yet.

        Without a `namespace`, of the first one that has a rollback with this id.
        """
        prefix = store_rows.report_prefix(rollback_id)
        if namespace is not None:
            prefix = store_rows.report_key(rollback_id, namespace)
        for _, raw in scan_prefix(self.rows(), prefix):
            if raw:
                return history_bytes.decode_report(rollback_id, raw)
        return None

    def rollback_met(self, rollback_id: EventId, namespace: Namespace) -> bool:
        """Return whether the record of a rollback was met, its report kept or not."""
        return (
            self.rows().get(store_rows.report_key(rollback_id, namespace)) is not None
        )

    def horizon(self, namespace: Namespace) -> Version:
        """Return the first version that has rows; 0 where none went."""
        return read_horizon(self.rows(), namespace)

    def quarantine(self, namespace: Namespace) -> Quarantine | None:
        """Return why `namespace` must not be served, None where it may be."""
        at = store_rows.in_namespace(store_rows.QUARANTINE, namespace)
        raw = self.rows().get(at)
        return None if raw is None else history_bytes.decode_quarantine(raw)

    def quarantined(self) -> Sequence[Namespace]:
        """Return every namespace that must not be served, by name."""
        # A key is the kind of row, the name's length and the name.
        found = scan_prefix(self.rows(), store_rows.QUARANTINE)
        return sorted(Namespace(key[2:].decode()) for key, _ in found)


class RowEntries:
    """`EntryReader` over the rows of one namespace."""

    def __init__(self, rows: Rows, namespace: Namespace) -> None:
        self._rows = rows
        self._entries = store_rows.in_namespace(store_rows.ENTRY, namespace)
        self._hits = store_rows.in_namespace(store_rows.HITS, namespace)

    def entry(self, key: ExactKey) -> Entry | None:
        """Return the entry at `key`, None where absent."""
        raw = self._rows.get(self._entries + key)
        return None if raw is None else entry_bytes.decode(raw)

    def hits(self, key: ExactKey) -> Hits | None:
        """Return the hit history at `key`, None where it was never served."""
        raw = self._rows.get(self._hits + key)
        return None if raw is None else state_bytes.decode_hits(raw)

    def entries(self) -> Iterable[Entry]:
        """Yield every entry of the namespace, in key order."""
        for _, raw in scan_prefix(self._rows, self._entries):
            yield entry_bytes.decode(raw)


class RowRequests:
    """`Requests` over the rows of one namespace."""

    def __init__(self, rows: Rows, namespace: Namespace) -> None:
        self._rows = rows
        self._namespace = namespace

    def head(self) -> Head:
        """Return the present generation."""
        at = store_rows.in_namespace(store_rows.REQUEST, self._namespace)
        raw = self._rows.get(at)
        return Head() if raw is None else history_bytes.decode_head(raw)

    def request(self, event_id: EventId, head: Head) -> Request | None:
        """Return the first event of the request that `event_id` is of."""
        for generation in range(head.generation, head.first - 1, -1):
            at = store_rows.request_key(self._namespace, generation, event_id)
            raw = self._rows.get(at)
            if raw is not None:
                return history_bytes.decode_request(raw)
        return None


def scan_prefix(rows: Rows, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows whose keys start with `prefix`, in order."""
    return rows.scan(prefix, store_rows.after(prefix))


def read_applied(rows: Rows) -> Offset:
    """Return the applied offset, -1 for an empty store."""
    raw = rows.get(store_rows.APPLIED)
    return Offset(-1 if raw is None else int.from_bytes(raw, "big", signed=True))


def read_horizon(rows: Rows, namespace: Namespace) -> Version:
    """Return the first version whose rows are kept, 0 where none went."""
    raw = rows.get(store_rows.in_namespace(store_rows.HORIZON, namespace))
    return Version(0 if raw is None else int.from_bytes(raw, "big"))


def read_state(rows: Rows, namespace: Namespace) -> NamespaceState:
    """Return a namespace's state, an empty one where it was never seen."""
    raw = rows.get(store_rows.in_namespace(store_rows.STATE, namespace))
    if raw is None:
        return NamespaceState(namespace=namespace)
    return state_bytes.decode_state(raw)


def read_totals(rows: Rows, namespace: Namespace) -> tuple[int, int]:
    """Return digest and number of the entries there are: a full scan."""
    digest, entries = EMPTY_DIGEST, 0
    for key, raw in scan_prefix(
        rows, store_rows.in_namespace(store_rows.ENTRY, namespace)
    ):
        digest = add(digest, key[-HASH_BYTES:], raw)
        entries += 1
    return digest, entries


class RowView(LiveRows):
    """The reading half of `StoreInspector`, over the rows last shown."""

    def __init__(self) -> None:
        self._rows: Rows = NoRows()
        self._applied = Offset(-1)
        self._states: dict[Namespace, NamespaceState] = {}
        self._quarantines: dict[Namespace, Quarantine | None] = {}

    def rows(self) -> Rows:
        """Return the rows last shown."""
        return self._rows

    def show(self, rows: Rows) -> Offset:
        """Read from `rows` from now on; return their applied offset."""
        self._rows = rows
        self._applied = read_applied(rows)
        self._states = {}
        self._quarantines = {}
        return self._applied

    def applied(self) -> Offset:
        """Return the applied offset of what is shown; -1 where none."""
        return self._applied

    def raw_entry(self, namespace: Namespace, key: ExactKey) -> bytes | None:
        """Return the stored bytes of an entry (see `core.entry_bytes`)."""
        return self._rows.get(store_rows.entry_key(namespace, key))

    def namespace(self, namespace: Namespace) -> NamespaceState:
        """Return the folded state; an empty one for a namespace never seen."""
        states = self._states  # taken first: `show` starts a new one
        state = states.get(namespace)
        if state is None:
            state = states[namespace] = super().namespace(namespace)
        return state

    def context(
        self, namespace: Namespace, context: ContextKey
    ) -> Sequence[ContextRow]:
        """Return the vectors under one context key, in exact key order."""
        prefix = store_rows.context_prefix(namespace, context)
        return [
            state_bytes.decode_context(ExactKey(key[-HASH_BYTES:]), raw)
            for key, raw in scan_prefix(self._rows, prefix)
        ]

    def changes_since(self, offset: Offset) -> Sequence[Change] | None:
        """Return the journal after `offset`; None where it no longer reaches back."""
        if offset > self._applied:
            return None  # the reader saw another store than this one
        start = store_rows.journal_key(Offset(max(offset + 1, 0)))
        end = store_rows.after(store_rows.JOURNAL)
        return changes_since(self._rows.scan(start, end), offset)

    def entries(self, namespace: Namespace) -> Iterable[Entry]:
        """Return every entry of a namespace, in key order: a full scan."""
        return RowEntries(self._rows, namespace).entries()

    def held(self, namespace: Namespace, after: ExactKey | None) -> Iterator[Held]:
        """Yield what is held at each key after one of them, in key order."""
        prefix = store_rows.in_namespace(store_rows.ENTRY, namespace)
        # The smallest key above another is that one and a zero byte.
        first = prefix if after is None else prefix + after + b"\0"
        expiry = entry_bytes.expiry
        for key, raw in self._rows.scan(first, store_rows.after(prefix)):
            yield Held(ExactKey(key[-HASH_BYTES:]), *expiry(raw), len(raw))

    def hits(self, namespace: Namespace, key: ExactKey) -> Hits | None:
        """Return the hit history at `key`, None where it was never served."""
        return RowEntries(self._rows, namespace).hits(key)

    def quarantine(self, namespace: Namespace) -> Quarantine | None:
        """Return why `namespace` must not be served, None where it may be."""
        quarantines = self._quarantines  # taken first: `show` starts a new one
        if namespace not in quarantines:
            quarantines[namespace] = super().quarantine(namespace)
        return quarantines[namespace]
