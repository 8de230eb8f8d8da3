"""Where each row of a partition's store is: the key layout, shared by all stores.

The first byte of a key is the kind of row; integers are big-endian; NAMESPACE is one
length byte and the name, so that no namespace's rows start with another's.

    00                                        identity of the log (`StoreIdentity`)
    01                                        applied offset, i64
    02 NAMESPACE                              `NamespaceState`
    03 NAMESPACE exact_key[32]                `Entry` (`core.entry_bytes`)
    04 NAMESPACE exact_key[32]                `Hits`
    05 NAMESPACE context_key[32] exact_key[32]  `ContextRow`, where there is a vector
    06 NAMESPACE version[8]                   `VersionRow`
    07 offset[8]                              journal row of the commit at that offset
    08 offset[8]                              seal of the newest commit, empty
    09 NAMESPACE version[8]                   keys that the version changed
    0a NAMESPACE version[8]                   target of the rollback that it is
    0b rollback_id[16] NAMESPACE              `RollbackReport`
    0c NAMESPACE                              `Quarantine`, where there is one
    0d NAMESPACE                              first version that has rows, u64
    0e NAMESPACE                              `Head` of requests, where there are any
    0e NAMESPACE generation[8] request[12]    `Request` that is done

Rows of versions may go (06, 09), up to 0d, and the report of a rollback may be empty
(0b), where nothing that is kept leads back to them: see `store_pruning`. So may
requests (0e) of generations that nobody looks into any more.

The applied offset stays at one key, the seal is under a new key with each commit. A
reader that sees old rows lie over newer ones finds that the two differ.
Values are those of `core.state_bytes` and `core.history_bytes` unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cachemind.core import entry_bytes, history_bytes, state_bytes
from cachemind.core.packing import Unpacker, pack_i64, pack_text, pack_u64
from cachemind.core.requested import request_of
from cachemind.core.rollback_report import (
    Quarantine,
    RollbackReport,
    RollbackStatus,
)
from cachemind.core.state import Entry
from cachemind.core.working_set import Mutations
from cachemind.types import (
    ContextKey,
    EventId,
    ExactKey,
    Namespace,
    Offset,
    Partition,
    Version,
)

IDENTITY: Final = b"\x00"
APPLIED: Final = b"\x01"
STATE: Final = b"\x02"
ENTRY: Final = b"\x03"
HITS: Final = b"\x04"
CONTEXT: Final = b"\x05"
VERSION: Final = b"\x06"
JOURNAL: Final = b"\x07"
SEAL: Final = b"\x08"
TOUCHED: Final = b"\x09"
TARGET: Final = b"\x0a"
REPORT: Final = b"\x0b"
QUARANTINE: Final = b"\x0c"
HORIZON: Final = b"\x0d"
REQUEST: Final = b"\x0e"
ROLLBACK_ID_BYTES: Final = 16

FORMAT: Final = 3
"""Raised whenever an older build could misread the store; it is then rebuilt."""

Row = tuple[bytes, bytes | None]
"""A key and its new value, None to delete."""


def in_namespace(kind: bytes, namespace: Namespace) -> bytes:
    """Return what every key of one kind of row of a namespace starts with."""
    name = namespace.encode()
    return kind + len(name).to_bytes(1, "big") + name


def entry_key(namespace: Namespace, key: ExactKey) -> bytes:
    """Return where an entry is."""
    return in_namespace(ENTRY, namespace) + key


def hits_key(namespace: Namespace, key: ExactKey) -> bytes:
    """Return where an entry's hit history is."""
    return in_namespace(HITS, namespace) + key


def context_prefix(namespace: Namespace, context: ContextKey) -> bytes:
    """Return what the keys of all vectors of one context start with."""
    return in_namespace(CONTEXT, namespace) + context


def version_key(namespace: Namespace, version: int) -> bytes:
    """Return where a version's history row is."""
    return in_namespace(VERSION, namespace) + pack_u64(version)


def touched_key(namespace: Namespace, version: int) -> bytes:
    """Return where the keys that a version changed are."""
    return in_namespace(TOUCHED, namespace) + pack_u64(version)


def target_key(namespace: Namespace, version: int) -> bytes:
    """Return where the target of the rollback `version` is."""
    return in_namespace(TARGET, namespace) + pack_u64(version)


def report_key(rollback_id: EventId, namespace: Namespace) -> bytes:
    """Return where the report of a namespace's rollback is."""
    return in_namespace(report_prefix(rollback_id), namespace)


def report_prefix(rollback_id: EventId) -> bytes:
    """Return what the keys of all reports of one rollback id start with."""
    return REPORT + rollback_id


def generation_prefix(namespace: Namespace, generation: int) -> bytes:
    """Return what the keys of all requests of one generation start with."""
    return in_namespace(REQUEST, namespace) + pack_u64(generation)


def request_key(namespace: Namespace, generation: int, event_id: EventId) -> bytes:
    """Return where the request is that an event is of."""
    return generation_prefix(namespace, generation) + request_of(event_id)


def version_of(key: bytes) -> Version:
    """Return the version that the key of a version's row ends with."""
    return Version(int.from_bytes(key[-8:], "big"))


def journal_key(offset: Offset) -> bytes:
    """Return where the journal row of a commit is."""
    return JOURNAL + pack_u64(offset)


def journal_offset(key: bytes) -> Offset:
    """Return the commit whose journal row is at `key`."""
    return Offset(int.from_bytes(key[1:], "big"))


def after(prefix: bytes) -> bytes:
    """Return the smallest key above all that start with `prefix`.

    The kinds of rows stay far below 0xff, so there always is one.
    """
    return (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreIdentity:
    """The log that a store was folded from."""

    cluster_id: str
    topic_id: str
    partition: Partition

    def __str__(self) -> str:
        return (
            f"cluster {self.cluster_id} topic {self.topic_id} "
            f"partition {self.partition}"
        )

    def encode(self) -> bytes:
        """Return the identity row."""
        return b"".join(
            (
                bytes([FORMAT]),
                pack_text(self.cluster_id),
                pack_text(self.topic_id),
                pack_u64(self.partition),
            )
        )

    @classmethod
    def decode(cls, raw: bytes) -> StoreIdentity:
        """Return the identity of a row. Raises: `CorruptState`."""
        row = Unpacker("store identity", raw)
        row.version(FORMAT)
        identity = cls(
            cluster_id=row.text(),
            topic_id=row.text(),
            partition=Partition(row.u64()),
        )
        row.end()
        return identity


def namespace_rows(namespace: Namespace, total: Mutations) -> Iterator[Row]:
    """Yield every row that the merged steps of one namespace write or delete."""
    if total.state is not None:
        state = state_bytes.encode_state(total.state)
        yield in_namespace(STATE, namespace), state
    at_entries = in_namespace(ENTRY, namespace)
    for key, entry in total.entries.items():
        yield at_entries + key, None if entry is None else entry_bytes.encode(entry)
    at_hits = in_namespace(HITS, namespace)
    for key, hits in total.hits.items():
        yield at_hits + key, None if hits is None else state_bytes.encode_hits(hits)
    at_contexts = in_namespace(CONTEXT, namespace)
    for (context, key), present in total.touched.items():
        entry = total.entries[key] if present else None
        yield at_contexts + context + key, _vector(entry)
    yield from _history(namespace, total)


def _history(namespace: Namespace, total: Mutations) -> Iterator[Row]:
    at_versions = in_namespace(VERSION, namespace)
    at_touched = in_namespace(TOUCHED, namespace)
    for row, keys in total.versions:
        version = pack_u64(row.version)
        yield at_versions + version, state_bytes.encode_version(row)
        yield at_touched + version, history_bytes.encode_touched(keys)
        if row.target is not None:
            at_target = target_key(namespace, row.version)
            yield at_target, history_bytes.encode_target(row.target)
    for done in total.requests:
        at_request = request_key(namespace, done.head.generation, done.request.event_id)
        yield at_request, history_bytes.encode_request(done.request)
    if total.requests:
        head = history_bytes.encode_head(total.requests[-1].head)
        yield in_namespace(REQUEST, namespace), head
    for report in total.reports:
        at_report = report_key(report.rollback_id, namespace)
        yield at_report, history_bytes.encode_report(report)
    if total.ended is not None:
        yield in_namespace(QUARANTINE, namespace), _quarantine(total.ended)


def _quarantine(ended: RollbackReport) -> bytes | None:
    if ended.status is not RollbackStatus.QUARANTINED:
        return None
    return history_bytes.encode_quarantine(
        Quarantine(offset=ended.offset, reason=ended.verdict)
    )


def applied_rows(before: Offset, applied: Offset) -> Iterator[Row]:
    """Yield the rows that say how far the log is folded in; -1 for not at all."""
    if before >= 0:
        yield SEAL + pack_u64(before), None
    yield SEAL + pack_u64(applied), b""
    yield APPLIED, pack_i64(applied)


def _vector(entry: Entry | None) -> bytes | None:
    if entry is None or entry.embedding is None:
        return None
    return state_bytes.encode_vector(entry.expires_at_ns, entry.embedding)
