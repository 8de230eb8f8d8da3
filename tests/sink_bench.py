"""One stream of the sink on memory: a topic, its cuts, a target and a clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cachemind.adapters.audit_files_reader import AuditFilesReader
from cachemind.adapters.clock import ManualClock
from cachemind.adapters.memory_audit_files import MemoryAuditFiles
from cachemind.adapters.memory_log import MemoryLog
from cachemind.agents.sink_cuts import CutSearch
from cachemind.agents.sink_resume import SinkPlace
from cachemind.agents.sink_stream import SinkRules, SinkStream
from cachemind.codec.audit_file import cut_of
from cachemind.core.audit_files import AuditStream, Rotation
from cachemind.core.audit_manifest import FileManifest
from cachemind.ports.audit_files import AuditTarget
from cachemind.types import Offset, Partition
from tests.sealed_cases import EPOCH_MS, ORIGIN, RECEIPTS, Cuts, Receipts

NS_PER_MS = 1_000_000
HERE = Partition(0)
SMALL = Rotation(max_bytes=2_000, max_age_ms=60_000, cut_wait_ms=5_000)


@dataclass
class Told:
    """`SinkMetrics` that remembers."""

    sealed_records: int = 0
    sealed_files: int = 0
    irregular_records: int = 0
    foreign_files: dict[str, int] = field(default_factory=dict)
    lags: dict[str, int] = field(default_factory=dict)
    stalls: list[tuple[str, str | None]] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)

    def lag(self, stream: AuditStream, records: int) -> None:
        self.lags[stream.folder] = records

    def sealed(self, stream: AuditStream, records: int, size_bytes: int) -> None:
        assert size_bytes > 0
        self.sealed_files += 1
        self.sealed_records += records

    def irregular(self, stream: AuditStream, records: int) -> None:
        self.irregular_records += records

    def foreign(self, stream: AuditStream, files: int) -> None:
        self.foreign_files[stream.folder] = files

    def stalled(self, stream: AuditStream, reason: str | None) -> None:
        self.stalls.append((stream.folder, reason))

    def let_go(self, stream: AuditStream) -> None:
        self.gone.append(stream.folder)


class SinkBench:
    """What a test does to a stream, and what came of it."""

    def __init__(
        self, target: AuditTarget | None = None, rotation: Rotation = SMALL
    ) -> None:
        self.clock = ManualClock(EPOCH_MS * NS_PER_MS)
        self.log = MemoryLog(1, self.clock)
        self.cuts_log = MemoryLog(1, self.clock)
        self.files = MemoryAuditFiles()
        self.target: AuditTarget = target or self.files
        self.rotation = rotation
        self.told = Told()
        self.receipts = Receipts()
        self.cuts = Cuts()
        self.written: list[bytes] = []

    def stream(self, stream: AuditStream = RECEIPTS) -> SinkStream:
        """Return a sink's view of the stream, as a process that starts has it."""
        log = self.cuts_log if stream.partition is None else self.log
        return SinkStream(
            SinkPlace(
                stream=stream,
                origin=ORIGIN,
                partition=HERE,
                reader=log.reader(),
                target=self.target,
            ),
            SinkRules(
                clock=self.clock,
                metrics=self.told,
                rotation=self.rotation,
                cuts=CutSearch(self.cuts_log.reader(), cut_of),
            ),
        )

    def resumed(self) -> SinkStream:
        """Return a stream that knows where to go on."""
        stream = self.stream()
        stream.resume()
        return stream

    def sign(self, count: int) -> None:
        """Put receipts on the topic."""
        self.write(self.receipts.some(count))

    def write(self, values: Sequence[bytes]) -> None:
        """Put any values on the topic."""
        writer = self.log.writer()
        for value in values:
            writer.append(b"", value, ()).result()
            self.written.append(value)

    def cut(self) -> None:
        """Put a cut over all receipts on its topic."""
        self.cuts_log.writer().append(b"", self.cuts.over([self.receipts]), ()).result()

    def advance(self, by_ms: int) -> None:
        """Let time pass."""
        self.clock.advance(by_ms * NS_PER_MS)

    def sealed(self) -> list[bytes]:
        """Return what a verifier reads, which must find nothing wrong."""
        reader = AuditFilesReader(self.target)
        found = list(reader.receipts(HERE))
        assert [str(one) for one in reader.problems] == []
        return found

    def manifests(self) -> list[FileManifest]:
        """Return the manifests of the receipts."""
        return list(AuditFilesReader(self.target).manifests(RECEIPTS))


def pump(stream: SinkStream) -> None:
    """Copy what is on the topic."""
    first, end = stream.reader.bounds(HERE)
    stream.check(first, end)
    for batch in stream.reader.read(HERE, stream.position, end):
        stream.take(batch)
    stream.settle(Offset(end))
    stream.tick(at_end=True)
