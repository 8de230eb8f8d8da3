"""Where each row of an index of receipts is, and the rows that a record brings.

The first byte of a key is the kind of row; integers are big-endian; P is a partition
in 4 bytes, NS the first 8 bytes of SHA-256 over a namespace's name.

    00                            identity of the audit log
    01 P                          `PartitionState`, for the owner alone
    02                            `CutsState`, for the owner alone
    10 P seq[8]                   the record of the audit topic, its exact bytes
    11 P source offset[8]         seq[8] of that WAL record's receipt
    12 P NS trace[16] seq[8]      nothing: the trace is named in that receipt
    13 P level[1] index[8]        a node of the partition's RFC 9162 tree
    20 P size[8]                  `CoveringCut`: the first cut with so many receipts
    21 index[8]                   the leaf of a key event, its exact bytes

What readers look at is written once and never changed, so that a reader which shows
an older state of the files shows less, but nothing wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from cachemind.core.merkle import node_hash
from cachemind.core.packing import (
    Unpacker,
    pack_blob,
    pack_many,
    pack_text,
    pack_u64,
)
from cachemind.receipts import CutIndex, Receipt, Seq
from cachemind.types import (
    HASH_BYTES,
    Lsn,
    Namespace,
    Partition,
    Sha256,
    TraceId,
)

IDENTITY: Final = b"\x00"
PARTITION_STATE: Final = b"\x01"
CUTS_STATE: Final = b"\x02"
RECORD: Final = b"\x10"
SOURCE: Final = b"\x11"
TRACE: Final = b"\x12"
NODE: Final = b"\x13"
COVERING: Final = b"\x20"
KEY_EVENT: Final = b"\x21"

FORMAT: Final = 1
"""Raised whenever an older build could misread the index; it is then rebuilt."""

Row = tuple[bytes, bytes | None]
"""A key and its new value, None to delete."""

Range = tuple[bytes, bytes]
"""Keys from the first up to but without the second."""

_PARTITION_BYTES: Final = 4
_NAMESPACE_BYTES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexIdentity:
    """The audit log that an index was made from."""

    cluster_id: str
    audit_topic_id: str
    cuts_topic_id: str

    def encode(self) -> bytes:
        """Return the identity row."""
        parts = (self.cluster_id, self.audit_topic_id, self.cuts_topic_id)
        return bytes([FORMAT]) + b"".join(map(pack_text, parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """How far a partition is in: next offset, receipts so far, the first one kept."""

    offset: int = 0
    size: int = 0
    kept_from: int = 0

    def encode(self) -> bytes:
        """Return the row."""
        return b"".join(map(pack_u64, (self.offset, self.size, self.kept_from)))

    @classmethod
    def decode(cls, raw: bytes) -> PartitionState:
        """Return the state of a row. Raises: `CorruptState`."""
        row = Unpacker("receipt index", raw)
        state = cls(offset=row.u64(), size=row.u64(), kept_from=row.u64())
        row.end()
        return state


@dataclass(frozen=True, slots=True, kw_only=True)
class CutsState:
    """How far the cuts are in, with the frontier of their log."""

    offset: int = 0
    size: int = 0
    frontier: tuple[Sha256, ...] = ()
    covered: tuple[int, ...] = ()

    def encode(self) -> bytes:
        """Return the row."""
        return b"".join(
            (
                pack_u64(self.offset),
                pack_u64(self.size),
                pack_many(self.frontier),
                pack_many(map(pack_u64, self.covered)),
            )
        )

    @classmethod
    def decode(cls, raw: bytes) -> CutsState:
        """Return the state of a row. Raises: `CorruptState`."""
        row = Unpacker("receipt index", raw)
        state = cls(
            offset=row.u64(),
            size=row.u64(),
            frontier=row.many(lambda: Sha256(row.fixed(HASH_BYTES))),
            covered=row.many(row.u64),
        )
        row.end()
        return state


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveringCut:
    """A cut's record, its place, and the path from it to its checkpoint's root."""

    index: CutIndex
    record: bytes
    path: tuple[Sha256, ...]

    def encode(self) -> bytes:
        """Return the row."""
        path = pack_many(self.path)
        return pack_u64(self.index) + pack_blob(self.record) + path

    @classmethod
    def decode(cls, raw: bytes) -> CoveringCut:
        """Return the cut of a row. Raises: `CorruptState`."""
        row = Unpacker("receipt index", raw)
        cut = cls(
            index=CutIndex(row.u64()),
            record=row.blob(),
            path=row.many(lambda: Sha256(row.fixed(HASH_BYTES))),
        )
        row.end()
        return cut


def of_partition(kind: bytes, partition: Partition) -> bytes:
    """Return what every key of one kind of row of a partition starts with."""
    return kind + partition.to_bytes(_PARTITION_BYTES, "big")


def record_key(partition: Partition, seq: int) -> bytes:
    """Return where a receipt's record is."""
    return of_partition(RECORD, partition) + pack_u64(seq)


def source_key(source: Lsn) -> bytes:
    """Return where the seq of a WAL record's receipt is."""
    return of_partition(SOURCE, source.partition) + pack_u64(source.offset)


def trace_prefix(partition: Partition, namespace: str, trace: TraceId) -> bytes:
    """Return what the keys of all receipts start with that name a trace."""
    name = sha256(namespace.encode()).digest()[:_NAMESPACE_BYTES]
    return of_partition(TRACE, partition) + name + trace


def trace_key(
    partition: Partition, namespace: Namespace | str, trace: TraceId, seq: int
) -> bytes:
    """Return where it says that a receipt names a trace."""
    return trace_prefix(partition, namespace, trace) + pack_u64(seq)


def node_key(partition: Partition, level: int, index: int) -> bytes:
    """Return where a node of a partition's tree is."""
    return of_partition(NODE, partition) + bytes([level]) + pack_u64(index)


def covering_key(partition: Partition, size: int) -> bytes:
    """Return where the first cut with `size` receipts of a partition is."""
    return of_partition(COVERING, partition) + pack_u64(size)


def key_event_key(index: int) -> bytes:
    """Return where the leaf of a key event is."""
    return KEY_EVENT + pack_u64(index)


def number_of(key: bytes) -> int:
    """Return the number that a key ends with."""
    return int.from_bytes(key[-8:], "big")


def receipt_rows(receipt: Receipt, record: bytes) -> Iterator[Row]:
    """Yield the rows of one receipt, without its tree's."""
    partition, seq = receipt.partition, receipt.seq
    yield record_key(partition, seq), record
    yield source_key(receipt.source), pack_u64(seq)
    for trace in {item.trace_id for item in receipt.items}:
        yield trace_key(partition, receipt.namespace, trace, seq), b""


def node_rows(
    partition: Partition, size: int, frontier: Sequence[Sha256], leaf: Sha256
) -> Iterator[tuple[bytes, Sha256]]:
    """Yield every node that the leaf at `size` completes, the leaf first.

    `frontier` are the roots of the complete subtrees before it, largest first.
    """
    index, level, node = size, 0, leaf
    yield node_key(partition, level, index), node
    left = list(frontier)
    while index & 1:
        node = node_hash(left.pop(), node)
        index, level = index >> 1, level + 1
        yield node_key(partition, level, index), node


def dropped(partition: Partition, before: int, kept_from: int) -> Iterator[Range]:
    """Yield the keys that are of no use once receipts below `kept_from` are gone.

    Those below `before` are gone already. Of the tree all stays that a proof of a
    later receipt takes: at each level the last node left of it.
    """
    yield record_key(partition, before), record_key(partition, kept_from)
    yield covering_key(partition, before), covering_key(partition, kept_from + 1)
    for level in range(kept_from.bit_length()):
        first, last = before >> level, (kept_from >> level) - 1
        begin = max(first - 1, 0)
        if begin < last:
            yield node_key(partition, level, begin), node_key(partition, level, last)


def seq_of(raw: bytes) -> Seq:
    """Return the seq in a row's value."""
    return Seq(int.from_bytes(raw, "big"))
