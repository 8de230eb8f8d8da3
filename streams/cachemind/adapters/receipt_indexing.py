"""Building and reading an index of receipts, over any ordered map of bytes.

The index believes what is on the topics as far as its order: who is to believe a
receipt verifies it. So a second receipt of a seq is said in the log and left out, and
so is what is no receipt, or no leaf that follows on: one record of another producer
must not keep callers from all others.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

from cachemind.adapters import receipt_rows as rows
from cachemind.adapters.receipt_rows import (
    CoveringCut,
    CutsState,
    PartitionState,
    Range,
    Row,
)
from cachemind.adapters.store_reading import Rows, scan_prefix
from cachemind.adapters.store_rows import after as end_of
from cachemind.codec.cuts import decode_cuts_record, decode_leaf
from cachemind.codec.receipts import decode_receipt, decode_signed_receipt
from cachemind.core.merkle import Frontier, frontier_at, inclusion_proof, leaf_hash
from cachemind.core.packing import pack_u64
from cachemind.core.partitioner import partition_of
from cachemind.errors import AuditBroken, UndecodableRecord, UnknownSchema
from cachemind.ports.log import LogRecord
from cachemind.ports.receipt_index import CutProof, FoundReceipt
from cachemind.receipts import Cut, CutIndex, Receipt, Seq
from cachemind.types import Lsn, Namespace, Offset, Partition, Sha256, TraceId

log = logging.getLogger(__name__)

KEPT: Final = 100_000
"""Receipts of a partition that stay findable, by default."""

CHUNK: Final = 512
"""So many are dropped at once."""


class ReceiptRows(ABC):
    """`ReceiptFinder` over whatever rows there are at the moment of each call."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    @abstractmethod
    def rows(self) -> Rows:
        """Return the rows to read from now. Raises: `StoreUnavailable`."""

    def of_trace(
        self, namespace: Namespace, trace: TraceId, after: int, limit: int
    ) -> Sequence[FoundReceipt]:
        """Return receipts in which a trace of `namespace` is named, by their order.

        At most `limit`, with a seq above `after`.
        """
        partition = Partition(partition_of(namespace.encode(), self._partitions))
        prefix = rows.trace_prefix(partition, namespace, trace)
        found = self.rows().scan(prefix + pack_u64(after + 1), end_of(prefix))
        named = (
            self._found(partition, rows.number_of(key), namespace) for key, _ in found
        )
        return list(islice((one for one in named if one is not None), limit))

    def of_source(self, source: Lsn) -> FoundReceipt | None:
        """Return the receipt of a WAL record."""
        raw = self.rows().get(rows.source_key(source))
        return None if raw is None else self._found(source.partition, rows.seq_of(raw))

    def proof(self, found: FoundReceipt) -> CutProof | None:
        """Return what proves a receipt, None until a cut covers it."""
        partition, seq = found.partition, found.seq
        prefix = rows.of_partition(rows.COVERING, partition)
        cuts = self.rows().scan(rows.covering_key(partition, seq + 1), end_of(prefix))
        for key, raw in cuts:
            cut = CoveringCut.decode(raw)
            node = partial(self._node, partition)
            try:
                path = inclusion_proof(node, seq, rows.number_of(key))
            except LookupError:
                # A cut that came before the receipts it covers; they are on their way.
                return None
            return CutProof(
                index=cut.index, record=cut.record, path=path, cut_path=cut.path
            )
        return None

    def key_events(self) -> Sequence[tuple[CutIndex, bytes]]:
        """Return the leaves of all key events, each with its place, in order."""
        found = scan_prefix(self.rows(), rows.KEY_EVENT)
        return [(CutIndex(rows.number_of(key)), raw) for key, raw in found]

    def _found(
        self, partition: Partition, seq: int, namespace: Namespace | None = None
    ) -> FoundReceipt | None:
        """Return a receipt; None where it is not kept, or is another namespace's."""
        record = self.rows().get(rows.record_key(partition, seq))
        if record is None or (
            # The key has only the beginning of the namespace's hash.
            namespace is not None and _receipt_in(record).namespace != namespace
        ):
            return None
        return FoundReceipt(partition=partition, seq=Seq(seq), record=record)

    def _node(self, partition: Partition, level: int, index: int) -> Sha256:
        raw = self.rows().get(rows.node_key(partition, level, index))
        if raw is None:
            raise LookupError(f"no node {index} at level {level}")
        return Sha256(raw)


class ReceiptIndexing(ReceiptRows):
    """`ReceiptIndex` that puts its rows wherever `write` does."""

    def __init__(self, partitions: int, kept: int = KEPT) -> None:
        super().__init__(partitions)
        self._kept = kept
        self._trees = {
            Partition(number): self._load(Partition(number))
            for number in range(partitions)
        }
        raw = self.rows().get(rows.CUTS_STATE)
        none = CutsState(covered=(0,) * partitions)
        self._cuts = none if raw is None else CutsState.decode(raw)

    @abstractmethod
    def write(self, changes: Iterable[Row], gone: Iterable[Range]) -> None:
        """Write and delete, all or nothing. Raises: `StoreUnavailable`."""

    def receipt_offsets(self) -> Mapping[Partition, Offset]:
        """Return the next offset to read of each partition of the audit topic."""
        return {number: Offset(tree.offset) for number, tree in self._trees.items()}

    def cut_offset(self) -> Offset:
        """Return the next offset to read of the topic of cuts."""
        return Offset(self._cuts.offset)

    def add_receipts(self, records: Sequence[LogRecord]) -> bool:
        """Take in records of the audit topic, in order within each partition.

        Returns False where the topic begins after its first receipt and no cut is
        known that has what is missing: then nothing was taken in.
        """
        changes: list[Row] = []
        gone: list[Range] = []
        trees: dict[Partition, _Tree] = {}
        for record in records:
            number = record.lsn.partition
            tree = trees.setdefault(number, self._trees[number].copy())
            if record.value is not None and not self._add(tree, record, changes):
                return False
            tree.offset = record.lsn.offset + 1
        for number, tree in trees.items():
            self._drop(tree, changes, gone)
            changes.append((rows.of_partition(rows.PARTITION_STATE, number), tree.row))
        self.write(changes, gone)
        self._trees |= trees
        return True

    def add_cuts(self, records: Sequence[LogRecord]) -> None:
        """Take in records of the topic of cuts, in order."""
        changes: list[Row] = []
        cuts = self._cuts
        for record in records:
            if record.value is not None:
                cuts = _cut_added(cuts, record, record.value, changes)
            cuts = replace(cuts, offset=record.lsn.offset + 1)
        changes.append((rows.CUTS_STATE, cuts.encode()))
        self.write(changes, ())
        self._cuts = cuts

    def _load(self, partition: Partition) -> _Tree:
        raw = self.rows().get(rows.of_partition(rows.PARTITION_STATE, partition))
        if raw is None:
            return _Tree(partition, PartitionState(), Frontier())
        state = PartitionState.decode(raw)
        nodes = frontier_at(partial(self._node, partition), state.size)
        return _Tree(partition, state, Frontier(state.size, nodes))

    def _add(self, tree: _Tree, record: LogRecord, changes: list[Row]) -> bool:
        value = record.value or b""
        try:
            signed = decode_signed_receipt(value)
            receipt = decode_receipt(signed.receipt)
        except (UndecodableRecord, UnknownSchema) as error:
            log.warning("%s on the audit topic is no receipt: %s", record.lsn, error)
            return True
        leaf = leaf_hash(signed.receipt)
        if receipt.partition != tree.partition or receipt.seq < tree.frontier.size:
            self._repeated(tree, receipt, leaf)
            return True
        if receipt.seq > tree.frontier.size and not self._skip(tree, receipt, changes):
            return False
        if receipt.seq == tree.frontier.size:
            changes.extend(rows.receipt_rows(receipt, value))
            changes.extend(tree.append(leaf))
        return True

    def _repeated(self, tree: _Tree, receipt: Receipt, leaf: Sha256) -> None:
        key = rows.node_key(tree.partition, 0, receipt.seq)
        known = self.rows().get(key)
        if receipt.partition != tree.partition or known not in (None, leaf):
            log.error(
                "a second receipt claims seq %d of partition %d; run `audit verify`",
                receipt.seq,
                tree.partition,
            )

    def _skip(self, tree: _Tree, receipt: Receipt, changes: list[Row]) -> bool:
        """Go on at the first cut past what is missing; return whether one is known."""
        partition = tree.partition
        first = rows.covering_key(partition, receipt.seq)
        prefix = rows.of_partition(rows.COVERING, partition)
        for _, raw in self.rows().scan(first, end_of(prefix)):
            leaf = decode_leaf(decode_cuts_record(CoveringCut.decode(raw).record).leaf)
            if isinstance(leaf, Cut):
                head = leaf.heads[partition]
                changes.extend(tree.restart(head.size, head.frontier))
                return True
        return False

    def _drop(self, tree: _Tree, changes: list[Row], gone: list[Range]) -> None:
        """Drop the oldest receipts where there are too many."""
        before = tree.kept_from
        if tree.frontier.size - before < self._kept + CHUNK:
            return
        tree.kept_from = tree.frontier.size - self._kept
        changes.extend(self._dropped_rows(tree.partition, before, tree.kept_from))
        gone.extend(rows.dropped(tree.partition, before, tree.kept_from))

    def _dropped_rows(
        self, partition: Partition, first: int, end: int
    ) -> Iterator[Row]:
        """Yield what leads to receipts that are to go."""
        found = self.rows().scan(
            rows.record_key(partition, first), rows.record_key(partition, end)
        )
        for _, record in found:
            for key, _ in rows.receipt_rows(_receipt_in(record), record):
                yield key, None


class _Tree:
    """What is in memory of a partition's tree."""

    def __init__(
        self, partition: Partition, state: PartitionState, frontier: Frontier
    ) -> None:
        self.partition = partition
        self.offset = state.offset
        self.kept_from = state.kept_from
        self.frontier = frontier

    @property
    def row(self) -> bytes:
        return PartitionState(
            offset=self.offset, size=self.frontier.size, kept_from=self.kept_from
        ).encode()

    def copy(self) -> _Tree:
        state = PartitionState(offset=self.offset, kept_from=self.kept_from)
        return _Tree(self.partition, state, self.frontier.copy())

    def append(self, leaf: Sha256) -> Iterable[Row]:
        before = self.frontier
        found = rows.node_rows(self.partition, before.size, before.nodes, leaf)
        written = list(found)
        before.append(leaf)
        return written

    def restart(self, size: int, nodes: tuple[Sha256, ...]) -> Iterator[Row]:
        """Go on from a frontier that is known from elsewhere."""
        self.frontier = Frontier(size, nodes)
        self.kept_from = size
        left = iter(nodes)
        for level in reversed(range(size.bit_length())):
            if size >> level & 1:
                at = rows.node_key(self.partition, level, (size >> level) - 1)
                yield at, next(left)


def _cut_added(
    cuts: CutsState, record: LogRecord, value: bytes, changes: list[Row]
) -> CutsState:
    """Return the cuts with what is in `record`, as they were where it does not fit."""
    try:
        return _add_cut(cuts, value, changes)
    except (AuditBroken, UndecodableRecord, UnknownSchema) as error:
        log.warning(
            "%s on the topic of cuts is left out; run `audit verify`: %s",
            record.lsn,
            error,
        )
        return cuts


def _add_cut(cuts: CutsState, record: bytes, changes: list[Row]) -> CutsState:
    found = decode_cuts_record(record)
    leaf = decode_leaf(found.leaf)
    index, covered = cuts.size, cuts.covered
    if isinstance(leaf, Cut):
        if leaf.index != index:
            raise AuditBroken(
                f"leaf {index} of the log of cuts", "order", f"it says {leaf.index}"
            )
        path = tuple(reversed(cuts.frontier))
        row = CoveringCut(index=CutIndex(index), record=record, path=path).encode()
        for head, size in zip(leaf.heads, covered, strict=False):
            if head.size > size:
                changes.append((rows.covering_key(head.partition, head.size), row))
        covered = tuple(head.size for head in leaf.heads)
    else:
        changes.append((rows.key_event_key(index), found.leaf))
    tree = Frontier(index, cuts.frontier)
    tree.append(leaf_hash(found.leaf))
    return replace(cuts, size=tree.size, frontier=tree.nodes, covered=covered)


def _receipt_in(record: bytes) -> Receipt:
    return decode_receipt(decode_signed_receipt(record).receipt)
