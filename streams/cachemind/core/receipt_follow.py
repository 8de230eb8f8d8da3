"""Receipts of one partition, as they follow on from each other.

Each names the leaf before it, so what does not follow on was dropped, inserted,
changed, or written by two signers at once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, Protocol

from cachemind.errors import AuditBroken
from cachemind.receipts import NO_LEAF, LogId, Seq
from cachemind.types import Lsn, Offset, Partition, Sha256

KEPT: Final = 4096
"""Leaves by which a repeated receipt is told from a second one of its seq."""

FORK: Final = "fork"
CHAIN: Final = "broken-chain"
SOURCE: Final = "source-does-not-follow"
OTHER_LOG: Final = "other-log"
LOST: Final = "records-lost"

NO_SOURCE: Final = Offset(-1)


class Placed(Protocol):
    """A `Receipt`, or what it says of its place."""

    @property
    def log_id(self) -> LogId:
        """Return which audit log it is in."""
        ...

    @property
    def partition(self) -> Partition:
        """Return its partition."""
        ...

    @property
    def seq(self) -> Seq:
        """Return its number there."""
        ...

    @property
    def previous(self) -> Sha256:
        """Return the leaf before it."""
        ...

    @property
    def source_topic(self) -> str:
        """Return the topic of the record that it is about."""
        ...

    @property
    def source(self) -> Lsn:
        """Return where that record is."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainEnd:
    """The end of a partition's receipts: what the next one follows on from.

    `leaf` is None where only the number of receipts is known, `source` the offset of
    the WAL record that the last one is about.
    """

    size: int
    leaf: Sha256 | None
    source: Offset


BEGINNING: Final = ChainEnd(size=0, leaf=NO_LEAF, source=NO_SOURCE)


class ReceiptChain:
    """Takes the receipts of one partition in the order of its topic."""

    def __init__(
        self,
        log_id: LogId,
        partition: Partition,
        source_topic: str,
        end: ChainEnd = BEGINNING,
    ) -> None:
        self._log_id = log_id
        self._partition = partition
        self._source_topic = source_topic
        self._size = end.size
        self._leaf = end.leaf
        self._source = end.source
        self._recent: deque[Sha256] = deque(maxlen=KEPT)

    @property
    def end(self) -> ChainEnd:
        """Return what the next receipt follows on from."""
        return ChainEnd(size=self._size, leaf=self._leaf, source=self._source)

    def take(self, receipt: Placed, leaf: Sha256) -> bool:
        """Return whether `receipt` is the next one; False where it is there already.

        Raises: `AuditBroken` where it does not follow on.
        """
        self._check_log(receipt)
        if receipt.seq < self._size:
            self._check_repeated(receipt, leaf)
            return False
        if receipt.seq > self._size:
            raise self._broken(receipt, CHAIN, f"expected seq {self._size}")
        if self._leaf is not None and receipt.previous != self._leaf:
            raise self._broken(receipt, CHAIN, "it names another receipt before it")
        if receipt.source.offset <= self._source:
            raise self._broken(
                receipt,
                SOURCE,
                f"is about {receipt.source}, the one before it about {self._source}",
            )
        self._size += 1
        self._leaf = leaf
        self._source = receipt.source.offset
        self._recent.append(leaf)
        return True

    def _check_log(self, receipt: Placed) -> None:
        if receipt.log_id != self._log_id:
            raise self._broken(
                receipt, OTHER_LOG, f"expected {self._log_id}, found {receipt.log_id}"
            )
        if receipt.source_topic != self._source_topic:
            raise self._broken(
                receipt,
                OTHER_LOG,
                f"expected receipts of {self._source_topic}, "
                f"found {receipt.source_topic}",
            )
        if not receipt.partition == receipt.source.partition == self._partition:
            raise self._broken(
                receipt, SOURCE, f"says {receipt.partition} and {receipt.source}"
            )

    def _check_repeated(self, receipt: Placed, leaf: Sha256) -> None:
        back = self._size - receipt.seq
        if back > len(self._recent) or self._recent[-back] != leaf:
            raise self._broken(receipt, FORK, "a second receipt of this seq")

    def _broken(self, receipt: Placed, reason: str, problem: str) -> AuditBroken:
        return AuditBroken(f"{self._partition}, seq {receipt.seq}", reason, problem)
