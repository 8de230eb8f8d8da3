"""Receipts and cuts that are rightly chained, and the sink's parts around them.

Nothing here is signed in earnest: who seals does not check signatures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from cachemind.codec.cuts import encode_cut, encode_cuts_record
from cachemind.codec.receipts import encode_receipt, encode_signed_receipt
from cachemind.core.audit_files import AuditStream
from cachemind.core.audit_manifest import LogOrigin
from cachemind.core.merkle import Frontier, leaf_hash
from cachemind.ports import LogRecord
from cachemind.receipts import (
    NO_LEAF,
    Cut,
    CutIndex,
    CutsRecord,
    KeyId,
    LogId,
    PartitionHead,
    Receipt,
    Seq,
    Signature,
    SignedReceipt,
)
from cachemind.types import (
    HASH_BYTES,
    Lsn,
    Offset,
    Partition,
    Sha256,
    Timeline,
    WriterId,
)

LOG_ID = LogId("example.org/audit")
KEY_ID = KeyId("0123456789abcdef")
ORIGIN = LogOrigin(cluster_id="cluster", topic="cachemind.audit", topic_id="topic-1")
RECEIPTS = AuditStream(Partition(0))
CUTS = AuditStream(None)
EPOCH_MS = 1_700_000_000_000


class Receipts:
    """Makes the receipts of one partition, one after the other."""

    def __init__(self, partition: int = 0) -> None:
        self.partition = Partition(partition)
        self.frontier = Frontier()
        self._previous = NO_LEAF
        self._seqs = count()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        seq = next(self._seqs)
        receipt = encode_receipt(
            Receipt(
                log_id=LOG_ID,
                partition=self.partition,
                seq=Seq(seq),
                previous=self._previous,
                source_topic="cachemind.wal",
                source=Lsn(self.partition, Offset(2 * seq)),
                record_hash=Sha256(bytes(HASH_BYTES)),
                kind="reads",
                namespace="default",
                timeline=Timeline(0),
                writer=WriterId("gateway-0"),
                op_hash=None,
                items=(),
                signed_at_ns=seq,
                key_id=KEY_ID,
            )
        )
        self._previous = leaf_hash(receipt)
        self.frontier.append(self._previous)
        signature = Signature(key_id=KEY_ID, value=bytes(64))
        return encode_signed_receipt(
            SignedReceipt(receipt=receipt, signature=signature)
        )

    def some(self, number: int) -> list[bytes]:
        """Return the next `number` values of the topic."""
        return [next(self) for _ in range(number)]

    def head(self) -> PartitionHead:
        """Return the head over all that were made."""
        return PartitionHead(
            partition=self.partition,
            size=self.frontier.size,
            root=self.frontier.root(),
            frontier=self.frontier.nodes,
        )


class Cuts:
    """Makes the records of the topic of cuts, one after the other."""

    def __init__(self) -> None:
        self._previous = NO_LEAF
        self._indices = count()

    def over(self, receipts: Iterable[Receipts]) -> bytes:
        """Return a cut over all receipts so far."""
        cut = encode_cut(
            Cut(
                log_id=LOG_ID,
                index=CutIndex(next(self._indices)),
                previous=self._previous,
                at_ns=0,
                heads=tuple(one.head() for one in receipts),
            )
        )
        self._previous = leaf_hash(cut)
        return encode_cuts_record(CutsRecord(leaf=cut, checkpoint="note"))


def records(
    values: Sequence[bytes | None],
    start: int = 0,
    partition: int = 0,
    timestamp_ms: int = EPOCH_MS,
) -> list[LogRecord]:
    """Return the values as they come from the topic."""
    return [
        LogRecord(
            lsn=Lsn(Partition(partition), Offset(offset)),
            key=None,
            value=value,
            headers=(),
            timestamp_ms=timestamp_ms,
        )
        for offset, value in enumerate(values, start)
    ]
