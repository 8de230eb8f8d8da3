"""The sealed files of the audit log: names, when one is full, what is in it.

    receipts/<partition>/<first>-<last>.avro   records of one partition, as on the topic
    receipts/<partition>/<first>.json          its manifest: `core.audit_manifest`
    cuts/...                                   the topic of cuts, the same way

`first` and `last` count the stream's records from 0, so that a gap shows in a listing.
They are the records' own `seq` as long as the topic holds nothing else. Every record is
copied, also one that is no receipt or out of order: judging is the verifier's.

A manifest is named by `first` alone and never replaced, so of two that begin at one
record there is one, and what no manifest names is no part of the stream.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

from cachemind.receipts import NO_LEAF
from cachemind.types import Offset, Partition, Sha256

RECEIPTS: Final = "receipts"
CUTS: Final = "cuts"
_DIGITS: Final = 20
_FILE: Final = re.compile(r"(\d{20})-(\d{20})\.avro\Z", re.ASCII)
_MANIFEST: Final = re.compile(r"(\d{20})\.json\Z", re.ASCII)
_PARTITION: Final = re.compile(r"(0|[1-9]\d{0,9})\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class AuditStream:
    """One sequence of files: a partition's receipts, or the cuts where None."""

    partition: Partition | None

    @property
    def folder(self) -> str:
        """Return its folder below the target, such as `receipts/3`."""
        return CUTS if self.partition is None else f"{RECEIPTS}/{self.partition}"

    @classmethod
    def parse(cls, folder: str) -> Self | None:
        """Return the stream of a folder, None where it is nobody's."""
        if folder == CUTS:
            return cls(None)
        above, _, name = folder.partition("/")
        if above == RECEIPTS and _PARTITION.match(name):
            return cls(Partition(int(name)))
        return None


@dataclass(frozen=True, slots=True, order=True)
class FileName:
    """Which records of its stream a file holds, both ends included."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first:0{_DIGITS}d}-{self.last:0{_DIGITS}d}.avro"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return what `name` says, None where it is no such name."""
        if (found := _FILE.match(name)) is None:
            return None
        first, last = int(found[1]), int(found[2])
        return cls(first, last) if first <= last else None


def manifest_name(first: int) -> str:
    """Return the name of the manifest of the file that begins at record `first`."""
    return f"{first:0{_DIGITS}d}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The names in one stream's folder, sorted. `foreign` are none of ours."""

    manifests: tuple[int, ...]
    files: tuple[FileName, ...]
    foreign: tuple[str, ...]

    def unclaimed(self, first: int) -> Sequence[FileName]:
        """Return the files from record `first` on, where no manifest begins there.

        A sink that was killed between a file and its manifest leaves one.
        """
        if first in self.manifests:
            return ()
        return [file for file in self.files if file.first == first]


def listed(names: Iterable[str]) -> Listing:
    """Return what the names in a stream's folder are."""
    manifests: list[int] = []
    files: list[FileName] = []
    foreign: list[str] = []
    for name in sorted(names):
        if (file := FileName.parse(name)) is not None:
            files.append(file)
        elif found := _MANIFEST.match(name):
            manifests.append(int(found[1]))
        else:
            foreign.append(name)
    return Listing(
        manifests=tuple(manifests), files=tuple(files), foreign=tuple(foreign)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How one record continues its chain.

    A key event among the cuts says neither its place nor what is before it: None.
    `source` is the offset on the WAL, None for what is no receipt.
    """

    seq: int | None
    previous: Sha256 | None
    leaf: Sha256
    source: Offset | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Which record would continue the chain in order."""

    next_seq: int = 0
    leaf: Sha256 = NO_LEAF

    def continued_by(self, link: Link) -> bool:
        """Return whether `link` is the next one."""
        return (link.seq is None or link.seq == self.next_seq) and (
            link.previous is None or link.previous == self.leaf
        )

    def after(self, link: Link) -> Chain:
        """Return the chain after a record; one that goes back changes nothing."""
        seq = self.next_seq if link.seq is None else link.seq
        return self if seq < self.next_seq else Chain(next_seq=seq + 1, leaf=link.leaf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The first and the last of a range, both included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What the records of one file are, so far.

    `irregular` counts those that do not continue the chain: repeats, gaps, forks,
    and what cannot be read. `seqs` and `source` are of the others, None for none.
    """

    chain: Chain
    records: int = 0
    irregular: int = 0
    offsets: Span | None = None
    seqs: Span | None = None
    source: Span | None = None


def counted(tally: Tally, batch: Iterable[tuple[Offset, Link | None]]) -> Tally:
    """Return the tally after more records; `None` is one that cannot be read."""
    chain, irregular = tally.chain, tally.irregular
    offsets, seqs, source = tally.offsets, tally.seqs, tally.source
    records = tally.records
    for offset, link in batch:
        records += 1
        offsets = _grown(offsets, offset)
        if link is None or not chain.continued_by(link):
            irregular += 1
        else:
            seqs = _grown(seqs, chain.next_seq)
            source = source if link.source is None else _grown(source, link.source)
        if link is not None:
            chain = chain.after(link)
    return Tally(
        chain=chain,
        records=records,
        irregular=irregular,
        offsets=offsets,
        seqs=seqs,
        source=source,
    )


def _grown(span: Span | None, number: int) -> Span:
    return Span(first=number if span is None else span.first, last=number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """When a file is full: by size at once, by age once the stream's end is reached.

    A full file waits up to `cut_wait_ms` for a cut that covers all of it, unless it
    has come to twice its size.
    """

    max_bytes: int
    max_age_ms: int
    cut_wait_ms: int

    def due(self, size_bytes: int, age_ms: int, *, at_end: bool) -> bool:
        """Return whether a file with records is to be sealed."""
        return size_bytes >= self.max_bytes or (at_end and age_ms >= self.max_age_ms)

    def waits(self, size_bytes: int, due_for_ms: int, *, covered: bool) -> bool:
        """Return whether a file that is due should wait for its cut."""
        return not (
            covered
            or due_for_ms >= self.cut_wait_ms
            or size_bytes >= 2 * self.max_bytes
        )
