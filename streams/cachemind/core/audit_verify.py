"""Verifies an audit log with public keys and nothing else, in numbered steps.

The steps are those of `audit_findings.Step`. The log of cuts is gone through once; at
each cut the receipts that are new under it are read. So memory does not grow with the
log: a frontier a partition, and some thousand hashes to tell repeats apart.

What cannot be seen is said each time: what was cut off after the last cut, and a log
that was signed anew by who holds its keys. Only a cut that somebody else has kept, or
a witness has signed, shows either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cachemind.core.audit_cuts import LogOfCuts, SettledCut, roots_unknown
from cachemind.core.audit_findings import (
    Finding,
    Place,
    Reason,
    Step,
    note,
    tampered,
    unverifiable,
)
from cachemind.core.audit_keys import verified_key_events
from cachemind.core.audit_means import Means
from cachemind.core.audit_notes import CutNote, witnessed_by
from cachemind.core.audit_receipts import PartitionReceipts, WalSide
from cachemind.core.key_validity import Tenure, revocations
from cachemind.receipts import PartitionHead
from cachemind.types import Partition

NONE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLog:
    """An audit log as found: values of records, in the order in which they are.

    `cuts` is gone through twice. `receipts` has every partition there is, also one
    without a receipt; `wal` those whose records are to be compared.
    """

    cuts: Callable[[], Iterable[bytes]]
    receipts: Mapping[Partition, Iterator[bytes]]
    wal: Mapping[Partition, WalSide]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a log is, as far as it was verified.

    `seen_elsewhere` is the last cut that a witness or a pinned cut vouches for.
    Units: `last_cut_ns` in nanoseconds since the Unix epoch (UTC), a claim.
    """

    cuts: int
    last_cut: int | None
    last_cut_ns: int | None
    receipts: Mapping[Partition, int]
    covered: Mapping[Partition, int]
    kinds: Mapping[str, int]
    keys: tuple[Tenure, ...]
    seen_elsewhere: int | None
    witnesses: Mapping[str, int]


class Verification:
    """One run over a log."""

    def __init__(
        self, log: AuditLog, means: Means, pinned: Sequence[CutNote] = ()
    ) -> None:
        """`pinned` are checkpoints of this log that were kept elsewhere."""
        self._log = log
        self._means = means
        self._pinned = {one.size: one for one in pinned}
        self._unmatched = set(self._pinned)
        self._partitions = {
            number: PartitionReceipts(number, values, means, log.wal.get(number))
            for number, values in log.receipts.items()
        }
        self._heads: tuple[PartitionHead, ...] | None = None
        self._last: SettledCut | None = None
        self._count = 0
        self._anchor = NONE
        self._witnesses: dict[str, int] = {}
        self._roots_known = True
        self._cuts: LogOfCuts | None = None

    def findings(self) -> Iterator[Finding]:
        """Yield what is found, in the order of the log of cuts. To be called once."""
        revoked = revocations(verified_key_events(self._log.cuts(), self._means))
        cuts = self._cuts = LogOfCuts(iter(self._log.cuts()), self._means, revoked)
        for found in cuts.leaves():
            if isinstance(found, Finding):
                yield found
            else:
                yield from self._cut(found, cuts)
        for number, partition in sorted(self._partitions.items()):
            yield from self._rest(number, partition, cuts)
        yield from self._pins_left(cuts)
        yield from self._limits()

    def summary(self) -> Summary:
        """Return what the log is, once all findings were taken."""
        kinds: Counter[str] = Counter()
        for partition in self._partitions.values():
            kinds += partition.kinds
        last = self._last
        return Summary(
            cuts=self._count,
            last_cut=None if last is None else last.cut.index,
            last_cut_ns=None if last is None else last.cut.at_ns,
            receipts={n: one.kinds.total() for n, one in self._partitions.items()},
            covered={head.partition: head.size for head in self._heads or ()},
            kinds=dict(sorted(kinds.items())),
            keys=() if self._cuts is None else self._cuts.keys.tenures(),
            seen_elsewhere=None if self._anchor == NONE else self._anchor,
            witnesses=dict(self._witnesses),
        )

    # ---- at a cut --------------------------------------------------------------------

    def _cut(self, settled: SettledCut, cuts: LogOfCuts) -> Iterator[Finding]:
        place = settled.place
        if settled.root is None and self._roots_known:
            self._roots_known = False
            yield roots_unknown(place)
        before, heads = self._heads, settled.cut.heads
        if before is not None and len(before) != len(heads):
            text = f"it names {len(heads)} partitions, the cut before {len(before)}"
            yield tampered(Step.HEADS, Reason.PARTITIONS_CHANGED, text, place)
        for head in heads:
            known = before is not None and head.partition < len(before)
            last = before[head.partition] if before is not None and known else None
            yield from self._head(head, last, settled, cuts)
        self._heads, self._last = heads, settled
        self._count += 1
        yield from self._anchors(settled)

    def _head(
        self,
        head: PartitionHead,
        last: PartitionHead | None,
        settled: SettledCut,
        cuts: LogOfCuts,
    ) -> Iterator[Finding]:
        if head == last:
            return
        place = Place(
            index=settled.cut.index,
            partition=head.partition,
            at_ns=settled.cut.at_ns,
        )
        if last is not None and head.size < last.size:
            text = f"it names {head.size} receipts, the cut before {last.size}"
            yield tampered(Step.HEADS, Reason.HEAD_SHRINKS, text, place)
            return
        if last is not None and head.size == last.size:
            text = "it names another root than the cut before, of as many receipts"
            yield tampered(Step.HEADS, Reason.HEAD_CHANGED, text, place)
            return
        partition = self._partitions.get(head.partition)
        if partition is None:
            partition = PartitionReceipts(head.partition, iter(()), self._means)
            self._partitions[head.partition] = partition
        yield from partition.up_to(head.size, cuts.keys)
        yield from partition.under(head, place)

    def _anchors(self, settled: SettledCut) -> Iterator[Finding]:
        """Compare what was kept elsewhere with the cut that has just its place."""
        index, place = settled.cut.index, settled.place
        names, broken = witnessed_by(settled.checkpoint, self._means)
        for name in broken:
            text = f"the cosignature by the witness {name} does not hold"
            yield tampered(Step.WITNESSES, Reason.WITNESS, text, place)
        for name in names:
            self._witnesses[name] = index
            self._anchor = index
        pinned = self._pinned.get(index + 1)
        if pinned is None:
            return
        self._unmatched.discard(index + 1)
        if settled.root is None and settled.checkpoint.root == pinned.root:
            return
        found = settled.checkpoint.root if settled.root is None else settled.root
        if found != pinned.root:
            text = "the log up to it is not the one that the pinned cut is of"
            yield tampered(Step.WITNESSES, Reason.PINNED_CUT, text, place)
            return
        self._anchor = index

    # ---- at the end ------------------------------------------------------------------

    def _rest(
        self, number: Partition, partition: PartitionReceipts, cuts: LogOfCuts
    ) -> Iterator[Finding]:
        heads = self._heads or ()
        covered = heads[number].size if number < len(heads) else 0
        yield from partition.rest(cuts.keys)
        if partition.next <= covered:
            return
        place = Place(partition=number, seq=covered)
        count = partition.next - covered
        if heads and number >= len(heads):
            text = f"{count} receipts of a partition that no cut names"
            yield tampered(Step.HEADS, Reason.PARTITION_UNNAMED, text, place)
            return
        text = (
            f"{count} receipts are after the last cut: were they gone, none would see"
        )
        yield note(Step.LIMITS, Reason.NOT_COVERED_YET, text, place)

    def _pins_left(self, cuts: LogOfCuts) -> Iterator[Finding]:
        for size in sorted(self._unmatched):
            place = Place(index=size - 1)
            if size > cuts.size:
                text = f"the pinned cut is not there: the log ends with {cuts.size - 1}"
                yield tampered(Step.WITNESSES, Reason.PINNED_CUT_MISSING, text, place)
            else:
                text = "the pinned cut's place holds no cut that could be compared"
                yield unverifiable(
                    Step.WITNESSES, Reason.PINNED_CUT_UNKNOWN, text, place
                )

    def _limits(self) -> Iterator[Finding]:
        """Say what nothing at hand can show."""
        if self._last is None:
            text = "there is no cut: nothing says which receipts there should be"
            yield unverifiable(Step.CUTS, Reason.CUTS_ABSENT, text)
            return
        last, anchor = self._last.cut.index, self._anchor
        place = Place(index=last)
        if anchor == NONE:
            since = "no witness or pinned cut vouches for any of it"
        elif anchor < last:
            since = f"a witness or a pinned cut vouches for all up to cut {anchor}"
        else:
            since = "a witness or a pinned cut vouches for this cut, and none after it"
        text = f"whether cuts after {last} were removed cannot be seen: {since}"
        yield note(Step.LIMITS, Reason.TAIL_UNKNOWABLE, text, place)
        if anchor < last:
            what = "all of it" if anchor == NONE else f"what is after cut {anchor}"
            text = f"who holds the signing keys could have signed {what} anew"
            yield note(Step.LIMITS, Reason.RESIGNING_UNKNOWABLE, text, place)
