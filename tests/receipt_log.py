"""An audit log as signer and cutter write it, without their signatures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cachemind.codec.cuts import encode_cut, encode_cuts_record
from cachemind.codec.receipts import encode_receipt, encode_signed_receipt
from cachemind.core.cutting import LogOfCuts, first_heads, next_cut
from cachemind.core.merkle import Frontier, leaf_hash
from cachemind.ports.log import LogRecord
from cachemind.receipts import (
    NO_LEAF,
    Cut,
    CutsRecord,
    KeyId,
    LogId,
    PartitionHead,
    Receipt,
    ReceiptItem,
    Seq,
    Signature,
    SignedReceipt,
)
from cachemind.types import (
    FIRST_TIMELINE,
    Lsn,
    Offset,
    Partition,
    Principal,
    Sha256,
    TraceId,
    WriterId,
)

LOG_ID = LogId("tests.example/audit")
KEY_ID = KeyId("00112233445566aa")


def trace(number: int) -> TraceId:
    return TraceId(number.to_bytes(16, "big"))


@dataclass
class ReceiptLog:
    """Grows receipt by receipt; its records are as the two topics have them."""

    partitions: int
    receipts: list[list[Receipt]] = field(default_factory=list)
    records: list[list[LogRecord]] = field(default_factory=list)
    cuts: list[LogRecord] = field(default_factory=list)
    roots: list[Sha256] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.receipts = [[] for _ in range(self.partitions)]
        self.records = [[] for _ in range(self.partitions)]
        self._trees = [Frontier() for _ in range(self.partitions)]
        self._log = LogOfCuts()

    def sign(
        self, partition: int, traces: Sequence[TraceId], namespace: str = "shop"
    ) -> Receipt:
        """Append the receipt of a record with these traces; every other offset."""
        before = self.receipts[partition]
        seq = len(before)
        previous = leaf_hash(encode_receipt(before[-1])) if before else NO_LEAF
        receipt = Receipt(
            log_id=LOG_ID,
            partition=Partition(partition),
            seq=Seq(seq),
            previous=previous,
            source_topic="cachemind.wal",
            source=Lsn(Partition(partition), Offset(2 * seq + 1)),
            record_hash=Sha256(bytes([partition]) * 32),
            kind="Reads",
            namespace=namespace,
            timeline=FIRST_TIMELINE,
            writer=WriterId("gateway-1"),
            op_hash=Sha256(bytes(32)),
            items=tuple(map(_item, traces)),
            signed_at_ns=1_000 + seq,
            key_id=KEY_ID,
        )
        self.add(receipt)
        return receipt

    def add(self, receipt: Receipt) -> None:
        """Append a receipt that follows on."""
        self.put(receipt)
        self.receipts[receipt.partition].append(receipt)
        self._trees[receipt.partition].append(leaf_hash(encode_receipt(receipt)))

    def put(self, receipt: Receipt) -> None:
        """Append a record to the audit topic, whatever it follows on from."""
        signed = SignedReceipt(
            receipt=encode_receipt(receipt),
            signature=Signature(key_id=KEY_ID, value=bytes(range(64))),
        )
        topic = self.records[receipt.partition]
        topic.append(_record(receipt.partition, topic, encode_signed_receipt(signed)))

    def put_raw(self, partition: int, value: bytes) -> None:
        """Append a record of another producer to the audit topic."""
        topic = self.records[partition]
        topic.append(_record(Partition(partition), topic, value))

    def cuts_raw(self, value: bytes) -> None:
        """Append a record of another producer to the topic of cuts."""
        self.cuts.append(_record(Partition(0), self.cuts, value))

    def cut(self) -> Cut:
        """Append a cut over all receipts so far."""
        heads = first_heads(self.partitions)
        found = [
            PartitionHead(
                partition=head.partition,
                size=tree.size,
                root=tree.root(),
                frontier=tree.nodes,
            )
            for head, tree in zip(heads, self._trees, strict=True)
        ]
        cut = next_cut(LOG_ID, self._log, tuple(found), at_ns=5)
        self.leaf(encode_cut(cut), "a checkpoint\n")
        return cut

    def leaf(self, leaf: bytes, checkpoint: str) -> None:
        """Append any leaf to the topic of cuts."""
        self._log.append(leaf)
        self.roots.append(self._log.root())
        value = encode_cuts_record(CutsRecord(leaf=leaf, checkpoint=checkpoint))
        self.cuts.append(_record(Partition(0), self.cuts, value))


def _item(trace_id: TraceId) -> ReceiptItem:
    return ReceiptItem(
        trace_id=trace_id,
        principal=Principal("local"),
        occurred_at_us=1,
        outcome="hit_exact",
        context_hash=None,
        prompt_hash=None,
        response_hash=None,
    )


def _record(
    partition: Partition, topic: Sequence[LogRecord], value: bytes
) -> LogRecord:
    # Every third offset, as transaction markers take some.
    return LogRecord(
        lsn=Lsn(partition, Offset(3 * len(topic))),
        key=None,
        value=value,
        headers=(),
        timestamp_ms=1,
    )
