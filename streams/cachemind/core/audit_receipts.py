"""Verifies the receipts of one partition, one after the other, between cuts.

In the order in which a receipt passes them: its signature holds (7), it decodes (1),
it has its place (6), it names the one before (8), its source is a later one (9), its
key may sign at this place (7). Under a cut, the root of all so far is compared (10).

What a broken record says is not believed: it leaves a hole of one place, so that one
fault is one finding. A hole's leaf is what the next receipt names as the one before.
Past larger holes the tree goes on from the frontier in the next cut.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from cachemind.core.audit_findings import (
    Finding,
    Place,
    Reason,
    Step,
    tampered,
)
from cachemind.core.audit_means import Means, undecodable
from cachemind.core.key_validity import KeyHistory, Verdict
from cachemind.core.merkle import Frontier, leaf_hash
from cachemind.core.receipt_chain import receipt_signing_input
from cachemind.errors import UndecodableRecord, UnknownSchema
from cachemind.receipts import NO_LEAF, PartitionHead, Receipt, SignedReceipt
from cachemind.types import Partition, Sha256

LOOK_AHEAD: Final = 64
"""How many records further a receipt that is out of order is looked for."""

REMEMBERED: Final = 4_096
"""How many leaves back a repeated receipt can be told from one in two versions."""

_BEGINNING: Final = -1


class WalSide(Protocol):
    """The records of one partition of the log, beside its receipts."""

    def match(self, receipt: Receipt) -> Iterator[Finding]:
        """Yield what is found about the next receipt, and the records before it."""
        ...

    def rest(self) -> Iterator[Finding]:
        """Yield what is found once there is no further receipt."""
        ...


@dataclass(slots=True, kw_only=True)
class _Item:
    """A record as read: a receipt, or why it is none."""

    signed: SignedReceipt | None = None
    receipt: Receipt | None = None
    problem: Finding | None = None
    holds: bool = False


class PartitionReceipts:
    """The receipts of one partition: read once, in order, with a bounded memory."""

    def __init__(
        self,
        partition: Partition,
        values: Iterator[bytes],
        means: Means,
        wal: WalSide | None = None,
    ) -> None:
        self.partition = partition
        self.next = 0
        self.kinds: Counter[str] = Counter()
        self.last_ns = 0
        self._values = values
        self._means = means
        self._wal = wal
        self._pending: deque[_Item] = deque()
        self._recent: dict[int, Sha256] = {}
        self._leaf: Sha256 | None = NO_LEAF
        self._frontier = Frontier()
        self._whole = True
        self._holes = 0
        self._told = 0
        self._short = 0
        self._source = _BEGINNING
        self._topic: str | None = None

    def up_to(self, size: int, keys: KeyHistory) -> Iterator[Finding]:
        """Yield what is found about the receipts below `size`, which a cut covers."""
        while self.next < size:
            item = self._take()
            if item is None:
                self._short = size
                return
            yield from self._place(item, keys, size)

    def under(self, head: PartitionHead, place: Place) -> Iterator[Finding]:
        """Yield what is found comparing the receipts so far with the cut at `place`."""
        told = Frontier(head.size, head.frontier)
        if told.root() != head.root:
            text = "the frontier that the cut names has another root than it names"
            yield tampered(Step.HEADS, Reason.FRONTIER, text, place)
            return
        if self.next != head.size:
            return  # Some are missing, and that is told.
        if self._whole and self._frontier.root() == head.root:
            return
        if self._whole:
            text = f"the first {head.size} receipts have another root than the cut says"
            yield tampered(Step.ROOTS, Reason.ROOT, text, place)
        self._frontier, self._whole = told, True

    def rest(self, keys: KeyHistory) -> Iterator[Finding]:
        """Yield what is found about the receipts that no cut covers, and the end."""
        while (item := self._take()) is not None:
            yield from self._place(item, keys, None)
        missing = self._short - self.next - self._holes
        if missing > 0:
            yield self._cut_off(missing)
        if self._wal is not None:
            yield from self._wal.rest()

    # ---- reading ---------------------------------------------------------------------

    def _take(self) -> _Item | None:
        if self._pending:
            return self._pending.popleft()
        value = next(self._values, None)
        return None if value is None else self._read(value)

    def _read(self, value: bytes) -> _Item:
        decoder = self._means.decoder
        try:
            signed = decoder.signed_receipt(value)
        except (UndecodableRecord, UnknownSchema) as error:
            return _Item(problem=undecodable(error, self._here()))
        try:
            return _Item(signed=signed, receipt=decoder.receipt(signed.receipt))
        except (UndecodableRecord, UnknownSchema) as error:
            return _Item(signed=signed, problem=undecodable(error, self._here()))

    def _look_ahead(self, seq: int) -> _Item | None:
        """Return the receipt `seq` if it is among the next records, taken out."""
        for item in self._pending:
            if item.receipt is not None and item.receipt.seq == seq:
                self._pending.remove(item)
                return item
        while len(self._pending) < LOOK_AHEAD:
            value = next(self._values, None)
            if value is None:
                break
            item = self._read(value)
            if item.receipt is not None and item.receipt.seq == seq:
                return item
            self._pending.append(item)
        return None

    # ---- its place -------------------------------------------------------------------

    def _place(
        self, item: _Item, keys: KeyHistory, size: int | None
    ) -> Iterator[Finding]:
        problem = self._broken(item, keys)
        receipt = item.receipt
        if problem is not None or receipt is None or item.signed is None:
            self._holes += 1
            if problem is not None:
                yield problem
            return
        if receipt.seq < self.next:
            yield self._again(item.signed, receipt)
            return
        if receipt.seq > self.next + self._holes:
            early = self._look_ahead(self.next)
            if early is not None:
                yield self._reordered(receipt)
                self._pending.appendleft(item)
                yield from self._place(early, keys, size)
                return
            if receipt.seq > self._told:
                yield self._missing(receipt)
        if size is not None and receipt.seq >= size:
            self._pending.appendleft(item)
            # The leaf just below `size` is known where that receipt comes next.
            self._skip(size, receipt.previous if receipt.seq == size else None)
            return
        if receipt.seq > self.next:
            self._skip(receipt.seq, receipt.previous)
        self._holes = 0
        yield from self._accept(item.signed, receipt, keys)

    def _skip(self, seq: int, previous: Sha256 | None) -> None:
        """Leave out all below `seq`, the last of which had the leaf `previous`."""
        if seq == self.next + 1 and previous is not None:
            self._frontier.append(previous)
        elif seq > self.next:
            self._whole = False
        self._holes = max(0, self._holes - (seq - self.next))
        self._leaf, self.next = None, seq

    def _broken(self, item: _Item, keys: KeyHistory) -> Finding | None:
        """Return why the record is not to be believed; None where it may be.

        The signature comes before what it says, which may not even decode.
        """
        signed, receipt = item.signed, item.receipt
        if item.holds or signed is None:
            return item.problem
        key_id = signed.signature.key_id
        key = keys.public_key(key_id)
        if key is not None:
            message = receipt_signing_input(signed.receipt)
            if not self._means.checks.ecdsa(key, message, signed.signature.value):
                text = f"the signature by key {key_id} does not hold"
                place = self._here() if receipt is None else self._at(receipt)
                return tampered(Step.SIGNATURES, Reason.SIGNATURE, text, place)
            item.holds = True
        if receipt is not None and key_id != receipt.key_id:
            text = "the signature names another key than the receipt"
            place = self._at(receipt)
            return tampered(Step.SIGNATURES, Reason.KEY_NAMES_DIFFER, text, place)
        return item.problem

    def _accept(
        self, signed: SignedReceipt, receipt: Receipt, keys: KeyHistory
    ) -> Iterator[Finding]:
        leaf = leaf_hash(signed.receipt)
        yield from self._chain(receipt)
        yield from self._sources(receipt)
        verdict = keys.receipt(receipt.key_id, self.partition, receipt.seq)
        if verdict is not Verdict.VALID:
            text = f"key {receipt.key_id} may not sign this receipt: {verdict}"
            reason = Reason(verdict.value)
            yield tampered(Step.SIGNATURES, reason, text, self._at(receipt))
        self._frontier.append(leaf)
        self._recent[receipt.seq] = leaf
        if len(self._recent) > REMEMBERED:
            del self._recent[next(iter(self._recent))]
        self._leaf, self.next = leaf, receipt.seq + 1
        self.kinds[receipt.kind] += 1
        self.last_ns = receipt.signed_at_ns
        if self._wal is not None:
            yield from self._wal.match(receipt)

    def _chain(self, receipt: Receipt) -> Iterator[Finding]:
        if self._leaf is not None and receipt.previous != self._leaf:
            text = "it names another receipt as the one before than is there"
            yield tampered(Step.CHAIN, Reason.CHAIN, text, self._at(receipt))
        if receipt.log_id != self._means.pinned.log_id:
            text = f"it is of the log {receipt.log_id!r}"
            yield tampered(Step.CHAIN, Reason.OTHER_LOG, text, self._at(receipt))
        if receipt.partition != self.partition:
            text = f"it is of partition {receipt.partition}"
            yield tampered(Step.CHAIN, Reason.OTHER_PARTITION, text, self._at(receipt))

    def _sources(self, receipt: Receipt) -> Iterator[Finding]:
        source, before = receipt.source, self._source
        if source.partition != self.partition:
            text = f"its source {source} is in another partition"
            yield tampered(
                Step.SOURCES, Reason.OTHER_PARTITION, text, self._at(receipt)
            )
        if self._topic is None:
            self._topic = receipt.source_topic
        if receipt.source_topic != self._topic:
            text = f"its source is in {receipt.source_topic}, others in {self._topic}"
            yield tampered(Step.SOURCES, Reason.SOURCE_TOPIC, text, self._at(receipt))
        if source.offset == before:
            text = f"the record {source} has two receipts"
            yield tampered(
                Step.SOURCES, Reason.SOURCE_REPEATED, text, self._at(receipt)
            )
        elif source.offset < before:
            text = f"its source {source} is before that of the receipt before, {before}"
            yield tampered(Step.SOURCES, Reason.SOURCE_ORDER, text, self._at(receipt))
        self._source = max(before, source.offset)

    # ---- findings --------------------------------------------------------------------

    def _again(self, signed: SignedReceipt, receipt: Receipt) -> Finding:
        known = self._recent.get(receipt.seq)
        place = self._at(receipt)
        if known is None:
            text = "it is there again, or late, too far back to compare"
            return tampered(Step.SEQUENCE, Reason.REPLAYED, text, place)
        if known == leaf_hash(signed.receipt):
            text = "it is there twice"
            return tampered(Step.SEQUENCE, Reason.DUPLICATE, text, place)
        text = "there are two receipts of this seq that differ, both signed"
        return tampered(Step.SEQUENCE, Reason.FORK, text, place)

    def _reordered(self, receipt: Receipt) -> Finding:
        text = f"receipt {self.next} comes after it"
        return tampered(Step.SEQUENCE, Reason.REORDERED, text, self._at(receipt))

    def _missing(self, receipt: Receipt) -> Finding:
        first = max(self.next, self._told)
        self._told = receipt.seq
        reason = Reason.HEAD_MISSING if first == 0 else Reason.MISSING
        count = receipt.seq - first
        text = f"{count} missing before receipt {receipt.seq} (LSN {receipt.source})"
        place = Place(partition=self.partition, seq=first, at_ns=receipt.signed_at_ns)
        return tampered(Step.SEQUENCE, reason, text, place)

    def _cut_off(self, missing: int) -> Finding:
        reason = Reason.TAIL_MISSING if self.next else Reason.PARTITION_MISSING
        text = f"{missing} missing that a cut covers, up to seq {self._short - 1}"
        return tampered(Step.SEQUENCE, reason, text, self._here())

    def _here(self) -> Place:
        return Place(partition=self.partition, seq=self.next)

    def _at(self, receipt: Receipt) -> Place:
        return Place(
            partition=self.partition,
            seq=receipt.seq,
            source=receipt.source,
            at_ns=receipt.signed_at_ns,
        )
