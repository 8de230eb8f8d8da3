"""Opens an audit log to be verified: from the topics, sealed files, or a dump."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cachemind.adapters.audit_files_reader import AuditFilesReader
from cachemind.adapters.audit_folder import AuditFolder
from cachemind.adapters.clock import SystemClock
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import count_partitions
from cachemind.codec import Codec
from cachemind.codec.audit_dump import DumpRecord, DumpTopic, read_dump
from cachemind.core.audit_files import AuditStream
from cachemind.core.audit_findings import Finding, Place, Reason, Step, note, tampered
from cachemind.core.audit_verify import AuditLog
from cachemind.core.audit_wal import WalJoin, WalRecord
from cachemind.errors import InvalidRequest
from cachemind.ports import LogReader
from cachemind.ports.audit_files import AuditTarget
from cachemind.types import Offset, Partition
from cachemind_services.bootstrap.log import (
    TOPICS_DEADLINE_S,
    codec_of,
    kafka_of,
    topics_of,
)
from cachemind_services.settings import Settings

Progress = Callable[[int, int], None]
"""Called with (receipts or offsets read, in all) as a verification goes on."""

BUCKET: Final = "s3://"
CUTS_PARTITION: Final = Partition(0)
QUEUE: Final = {"queued.max.messages.kbytes": "4096"}
"""A verification reads all partitions at once; each must keep little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedAudit:
    """An audit log, and how to tell what is wrong with where it is kept.

    `kept` is to be called after the log was read.
    """

    where: str
    log: AuditLog
    kept: Callable[[], Iterator[Finding]]


@contextmanager
def opened_audit(
    settings: Settings, files: str | None, against_wal: bool, progress: Progress
) -> Iterator[OpenedAudit]:
    """Open the audit log at `files`: a folder, a bucket, a dump; else on the topics.

    Nothing is created or written anywhere. Raises: `InvalidRequest`, `BrokerError`,
    `LogUnavailable`, `LogRejected`, `AuditFilesUnavailable`.
    """
    with ExitStack() as closers:
        if files is None:
            source = _topics(settings, progress, closers)
        elif files.startswith(BUCKET):
            source = _sealed(_bucket(files), progress)
        elif Path(files).is_dir():
            source = _sealed(AuditFolder(Path(files)), progress)
        elif Path(files).is_file():
            source = _dump(Path(files), progress)
        else:
            raise InvalidRequest("--files", f"{files} is neither a folder nor a file")
        if against_wal:
            wal = source.wal if source.wal else _wal(settings, closers)
            if not wal:
                raise InvalidRequest("--against-wal", "there is no WAL to be read")
        else:
            wal = {}
        log = AuditLog(cuts=source.cuts, receipts=source.receipts, wal=wal)
        yield OpenedAudit(where=source.where, log=log, kept=source.kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    where: str
    cuts: Callable[[], Iterator[bytes]]
    receipts: Mapping[Partition, Iterator[bytes]]
    wal: Mapping[Partition, WalJoin]
    kept: Callable[[], Iterator[Finding]]


class _Counter:
    """Adds up what every partition has read."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._done, self._total, self._progress = 0, total, progress

    def add(self, count: int) -> None:
        self._done += count
        self._progress(self._done, self._total)


# ---- topics --------------------------------------------------------------------------


def _topics(settings: Settings, progress: Progress, closers: ExitStack) -> _Source:
    topics = topics_of(settings)
    counts = _counted(settings, [topics.audit.name, topics.audit_cuts.name])
    cuts = _reader(settings, topics.audit_cuts.name, closers)
    receipts = _reader(settings, topics.audit.name, closers)
    # Cuts before receipts: what a cut covers was on its topic before the cut was.
    first, end = cuts.bounds(CUTS_PARTITION)
    partitions = [Partition(number) for number in range(counts[topics.audit.name])]
    bounds = {number: receipts.bounds(number) for number in partitions}
    counter = _Counter(sum(b - a for a, b in bounds.values()), progress)

    def kept() -> Iterator[Finding]:
        for number, (begin, _) in bounds.items():
            if begin > 0:
                text = f"{topics.audit.name} begins at offset {begin}"
                place = Place(partition=number)
                yield note(Step.SEQUENCE, Reason.DELETED_BEFORE, text, place)
        if first > 0:
            text = f"{topics.audit_cuts.name} begins at offset {first}"
            yield note(Step.CUTS, Reason.DELETED_BEFORE, text)

    return _Source(
        where=f"the topics {topics.audit.name} and {topics.audit_cuts.name}",
        cuts=lambda: _values(cuts, CUTS_PARTITION, first, end, None),
        receipts={
            number: _values(receipts, number, *bounds[number], counter)
            for number in partitions
        },
        wal={},
        kept=kept,
    )


def _wal(settings: Settings, closers: ExitStack) -> Mapping[Partition, WalJoin]:
    topic = topics_of(settings).wal.name
    count = _counted(settings, [topic])[topic]
    reader, codec = _reader(settings, topic, closers), codec_of(settings)
    joins = {}
    for number in map(Partition, range(count)):
        first, end = reader.bounds(number)
        records = _records(reader, number, first, end)
        joins[number] = WalJoin(number, first, records, codec.decode)
    return joins


def _counted(settings: Settings, names: list[str]) -> Mapping[str, int]:
    counts = count_partitions(kafka_of(settings), names, TOPICS_DEADLINE_S)
    for name in names:
        if name not in counts:
            raise InvalidRequest("--topic-prefix", f"there is no topic {name}")
    return counts


def _reader(settings: Settings, topic: str, closers: ExitStack) -> KafkaReader:
    reader = KafkaReader({**QUEUE, **kafka_of(settings)}, topic)
    return closers.enter_context(closing(reader))


def _values(
    reader: LogReader,
    partition: Partition,
    first: Offset,
    end: Offset,
    counter: _Counter | None,
) -> Iterator[bytes]:
    reached = int(first)
    for batch in reader.read(partition, first, end):
        for record in batch:
            yield record.value or b""
        if counter is not None:
            counter.add(batch[-1].lsn.offset + 1 - reached)
            reached = batch[-1].lsn.offset + 1
    if counter is not None:
        counter.add(end - reached)


def _records(
    reader: LogReader, partition: Partition, first: Offset, end: Offset
) -> Iterator[WalRecord]:
    for batch in reader.read(partition, first, end):
        for record in batch:
            yield WalRecord(record.lsn.offset, record.value)


# ---- files ---------------------------------------------------------------------------


def _bucket(url: str) -> AuditTarget:
    try:
        from cachemind.adapters.audit_bucket import AuditBucket
    except ImportError as error:
        problem = "needs boto3: pip install 'cachemind[aws]'"
        raise InvalidRequest("--files", problem) from error
    return AuditBucket(url, SystemClock())


def _sealed(target: AuditTarget, progress: Progress) -> _Source:
    reader = AuditFilesReader(target)
    partitions = reader.partitions()
    total = sum(
        manifest.tally.records
        for number in partitions
        for manifest in reader.manifests(AuditStream(number))
    )
    counter = _Counter(total, progress)

    def kept() -> Iterator[Finding]:
        for problem in reader.problems:
            yield tampered(Step.BYTES, Reason.FILE_DAMAGED, str(problem))
        for name in reader.foreign():
            text = f"{name} is named by no manifest, and was not read"
            yield note(Step.BYTES, Reason.FILE_UNNAMED, text)

    return _Source(
        where=f"the sealed files in {target.where}",
        cuts=reader.cuts,
        receipts={
            number: _each(reader.receipts(number), counter) for number in partitions
        },
        wal={},
        kept=kept,
    )


def _each(values: Iterator[bytes], counter: _Counter) -> Iterator[bytes]:
    for value in values:
        counter.add(1)
        yield value


# ---- dumps ---------------------------------------------------------------------------


def _dump(path: Path, progress: Progress) -> _Source:
    counts: dict[tuple[DumpTopic, Partition], int] = {}
    for record in _lines(path):
        key = record.topic, record.partition
        counts[key] = counts.get(key, 0) + 1
    receipts = sorted(p for topic, p in counts if topic is DumpTopic.RECEIPTS)
    has_wal = any(topic is DumpTopic.WAL for topic, _ in counts)
    total = sum(n for (topic, _), n in counts.items() if topic is DumpTopic.RECEIPTS)
    counter = _Counter(total, progress)
    return _Source(
        where=f"the dump {path}",
        cuts=lambda: (one.value or b"" for one in _of(path, DumpTopic.CUTS, None)),
        receipts={
            number: _each(
                (one.value or b"" for one in _of(path, DumpTopic.RECEIPTS, number)),
                counter,
            )
            for number in receipts
        },
        wal={number: _dumped_wal(path, number) for number in receipts if has_wal},
        kept=lambda: iter(()),
    )


def _dumped_wal(path: Path, partition: Partition) -> WalJoin:
    records = (
        WalRecord(one.offset, one.value) for one in _of(path, DumpTopic.WAL, partition)
    )
    begin = next(_of(path, DumpTopic.WAL, partition), None)
    first = Offset(0) if begin is None else begin.offset
    return WalJoin(partition, first, records, Codec().decode)


def _of(
    path: Path, topic: DumpTopic, partition: Partition | None
) -> Iterator[DumpRecord]:
    for record in _lines(path):
        if record.topic is topic and partition in (None, record.partition):
            yield record


def _lines(path: Path) -> Iterator[DumpRecord]:
    with path.open("rb") as lines:
        yield from read_dump(lines)
