"""One stream of the sink: copies the records of a partition into sealed files.

1. What is sealed already says where to go on: the last manifest of the target.
2. A file that was sealed without its manifest gets it, if the topic says the same.
3. Records go into an open file, which counts for nothing until it is sealed.
4. A file that is full is sealed, then its manifest, which makes it part of the stream.

Whatever a killed sink has left open is made anew from the topic.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cachemind.agents.sink_cuts import CutSearch
from cachemind.agents.sink_file import OpenFile, put_small
from cachemind.agents.sink_resume import SinkPlace, last_sealed, unclaimed_file
from cachemind.codec.audit_file import link_of
from cachemind.core.audit_files import (
    FileName,
    Link,
    Rotation,
    Tally,
    manifest_name,
)
from cachemind.core.audit_manifest import (
    CoveringCuts,
    FileManifest,
    Resumption,
    SealedFile,
    resumed,
)
from cachemind.core.identifiers import NS_PER_MS
from cachemind.errors import AuditFileDamaged, LogUnavailable
from cachemind.ports import Clock, LogRecord
from cachemind.ports.audit_files import SinkMetrics
from cachemind.types import Lsn, Offset

log = logging.getLogger(__name__)

NAMED: Final = 10
"""Foreign files that a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRules:
    """What all streams of a sink have in common."""

    clock: Clock
    metrics: SinkMetrics
    rotation: Rotation
    cuts: CutSearch


@dataclass(frozen=True, slots=True)
class _Sealing:
    """What was decided about a file that is being sealed."""

    cuts: CoveringCuts | None
    at_ns: int


class SinkStream:
    """One stream; use it from one thread.

    After `AuditScratchLost`, `AuditFileTaken` or `AuditFileDamaged` it has to be
    dropped and resumed; after any other error the same call may be made again.
    """

    def __init__(self, place: SinkPlace, rules: SinkRules) -> None:
        self.stream: Final = place.stream
        self.reader: Final = place.reader
        self.partition: Final = place.partition
        self._place = place
        self._rules = rules
        self._done: Resumption | None = None
        self._position = Offset(0)
        self._file: OpenFile | None = None
        self._due_since_ms: int | None = None
        self._sealing: _Sealing | None = None
        self._foreign: Sequence[str] = ()

    @property
    def ready(self) -> bool:
        """Return whether it knows what is sealed."""
        return self._done is not None

    @property
    def position(self) -> Offset:
        """Return the next offset to take."""
        return self._position

    @property
    def sealed_to(self) -> Offset:
        """Return the offset below which all is sealed."""
        if self._done is None:
            return Offset(0)
        return self._position if self._file is None else self._done.offset

    def resume(self) -> None:
        """Find out what is sealed.

        Raises: `AuditFileDamaged` where that cannot be gone on from;
        `AuditFilesUnavailable`, `LogUnavailable`.
        """
        done, listing = last_sealed(self._place)
        found = unclaimed_file(self._place, done, listing)
        if found is not None:
            file, tally = found
            log.warning("%s was sealed without its manifest", self._shown(file.name))
            sealing = _Sealing(self._covering(tally, done), self._now_ns())
            done = self._put_manifest(done, file, tally, sealing)
        self._begin_at(done)
        self._note_foreign(listing.foreign)
        log.info("%s goes on at record %d", self.stream.folder, done.number)

    def check(self, first: Offset, end: Offset) -> None:
        """Compare with the topic's bounds; step over what was deleted from it.

        Raises: `AuditFileDamaged` where the topic ends before what is sealed.
        """
        if self._position > end:
            raise AuditFileDamaged(
                self.stream.folder,
                f"is sealed up to {Lsn(self.partition, self._position)} but the topic "
                f"ends at {end}: it is another log, or it was truncated",
            )
        if self._position < first:
            log.error(
                "%s: what was on the topic from %d to %d was deleted before it was "
                "sealed",
                self.stream.folder,
                self._position,
                first,
            )
            self.settle(first)

    def take(self, records: Sequence[LogRecord]) -> None:
        """Copy records in the order of the topic; those it has are passed over.

        Raises: `AuditFilesUnavailable`, `AuditScratchLost`, `AuditFileTaken`,
        `LogUnavailable`.
        """
        for record in records:
            if record.lsn.offset >= self._position:
                self._take(record, self._link(record))

    def take_next(self, records: Sequence[LogRecord]) -> bool:
        """Copy records that follow on; return whether they do.

        Offsets have gaps where transactions end. A record that names the one before
        it shows that nothing was left out. Raises: as `take`.
        """
        for record in records:
            if record.lsn.offset < self._position:
                continue
            link = self._link(record)
            if record.lsn.offset > self._position and not self._continues(link):
                return False
            self._take(record, link)
        return True

    def settle(self, end: Offset) -> None:
        """Note that no more records are below `end`."""
        self._position = max(self._position, end)

    def tick(self, *, at_end: bool) -> None:
        """Seal the open file if its time has come. Raises: as `take`."""
        self._finish_sealing()
        if self._file is not None:
            self._look(self._file, at_end=at_end)

    def seal(self) -> None:
        """Seal what there is, whether or not a cut covers it. Raises: as `take`."""
        self._finish_sealing()
        if self._file is None or self._done is None:
            return
        try:
            cuts = self._covering(self._file.tally, self._done)
        except LogUnavailable:
            cuts = None
        self._begin_sealing(cuts)

    def drop(self) -> None:
        """Forget the open file, and what was known."""
        if self._file is not None:
            self._file.discard()
        self._file, self._sealing, self._due_since_ms = None, None, None
        self._done = None

    def _take(self, record: LogRecord, link: Link | None) -> None:
        self._finish_sealing()
        if self._done is None:
            raise ValueError("the stream was not resumed")
        file = self._opened(self._done)
        file.relieve()
        file.add(record, link)
        self._position = Offset(record.lsn.offset + 1)
        # Once it waits for its cut, time tells, unless it gets far too large.
        limit = self._rules.rotation.max_bytes * (
            1 if self._due_since_ms is None else 2
        )
        if file.size_bytes >= limit:
            self._look(file, at_end=False)

    def _look(self, file: OpenFile, *, at_end: bool) -> None:
        """Seal `file` if it is due and need not wait for a cut."""
        rotation, now_ms = self._rules.rotation, self._now_ns() // NS_PER_MS
        size, age_ms = file.size_bytes, now_ms - file.oldest_ms
        if self._done is None or not rotation.due(size, age_ms, at_end=at_end):
            return
        if self._due_since_ms is None:
            self._due_since_ms = now_ms
        cuts = self._covering(file.tally, self._done)
        covered = cuts is not None or self.stream.partition is None
        if not rotation.waits(size, now_ms - self._due_since_ms, covered=covered):
            self._begin_sealing(cuts)

    def _begin_sealing(self, cuts: CoveringCuts | None) -> None:
        self._sealing = _Sealing(cuts, self._now_ns())
        self._finish_sealing()

    def _finish_sealing(self) -> None:
        """Seal the file about which that was decided, if there is one."""
        file, sealing, done = self._file, self._sealing, self._done
        if file is None or sealing is None or done is None:
            return
        sealed = file.seal()
        self._done = self._put_manifest(done, sealed, file.tally, sealing)
        file.discard()
        self._file, self._sealing, self._due_since_ms = None, None, None

    def _put_manifest(
        self, done: Resumption, file: SealedFile, tally: Tally, sealing: _Sealing
    ) -> Resumption:
        """Make a sealed file part of the stream; return where to go on."""
        manifest = FileManifest(
            origin=self._place.origin,
            stream=self.stream,
            file=file,
            tally=tally,
            cuts=sealing.cuts,
            previous=done.previous,
            sealed_at_ns=sealing.at_ns,
        )
        line = manifest.encode()
        name = manifest_name(file.name.first)
        put_small(self._place.target, self.stream, name, line)
        metrics = self._rules.metrics
        metrics.sealed(self.stream, tally.records, file.size_bytes)
        if tally.irregular:
            metrics.irregular(self.stream, tally.irregular)
            log.error(
                "%s: %d of its records do not continue their chain",
                self._shown(file.name),
                tally.irregular,
            )
        return resumed(done, manifest, line)

    def _covering(self, tally: Tally, done: Resumption) -> CoveringCuts | None:
        partition = self.stream.partition
        if partition is None or tally.seqs is None:
            return None
        return self._rules.cuts.covering(partition, tally.seqs, done.cuts_from)

    def _begin_at(self, done: Resumption) -> None:
        self.drop()
        self._done, self._position = done, done.offset

    def _opened(self, done: Resumption) -> OpenFile:
        if self._file is None:
            self._file = OpenFile(
                self._place.target,
                self._place.origin,
                self.stream,
                done,
                self._now_ns() // NS_PER_MS,
            )
        return self._file

    def _continues(self, link: Link | None) -> bool:
        """Return whether a record names, and so follows, the last one taken."""
        if link is None or link.seq is None or self._done is None:
            return False
        file = self._file
        chain = self._done.chain if file is None else file.tally.chain
        return chain.continued_by(link)

    def _link(self, record: LogRecord) -> Link | None:
        return link_of(self.stream, record.value)

    def _note_foreign(self, names: Sequence[str]) -> None:
        self._rules.metrics.foreign(self.stream, len(names))
        if names and names != self._foreign:
            log.warning(
                "%s: %d files are none of ours and left alone: %s",
                self.stream.folder,
                len(names),
                ", ".join(names[:NAMED]),
            )
        self._foreign = names

    def _shown(self, name: FileName) -> str:
        return f"{self.stream.folder}/{name}"

    def _now_ns(self) -> int:
        return self._rules.clock.now_ns()
