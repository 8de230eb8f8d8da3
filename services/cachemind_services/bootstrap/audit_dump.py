"""The audit log as it lies on the topics or in sealed files, record by record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cachemind.adapters.audit_files_reader import AuditFilesReader
from cachemind.adapters.audit_folder import AuditFolder
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.agents.sink_stream import SinkStream
from cachemind.core.audit_files import AuditStream
from cachemind.core.topics import TopicSpec
from cachemind.errors import AuditFileDamaged
from cachemind.types import Partition
from cachemind_services.bootstrap.log import identify, kafka_of, topics_of
from cachemind_services.bootstrap.sink_parts import SinkParts
from cachemind_services.settings import Settings
from cachemind_services.sink_metrics import PrometheusSinkMetrics

CUTS: Final = Partition(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedRecord:
    """One record. `offset` is None where it is not known, as in files.

    `value` is the exact bytes, None for a record without a value.
    """

    topic: str
    partition: Partition
    offset: int | None
    value: bytes | None


def dumped_from_topics(settings: Settings, *, wal: bool) -> Iterator[DumpedRecord]:
    """Yield all that is on the audit topics now, and on the WAL where `wal`.

    What comes meanwhile is left out, cuts first: so each cut's receipts are there.
    Raises: `LogUnavailable`, `InvalidSetting`.
    """
    topics = topics_of(settings)
    wanted = [topics.audit_cuts, topics.audit, *([topics.wal] if wal else [])]
    for spec in wanted:
        yield from _topic(settings, spec)


def dumped_from_files(settings: Settings, folder: Path) -> Iterator[DumpedRecord]:
    """Yield all that sealed files hold.

    Raises: `AuditFilesUnavailable`; `AuditFileDamaged` at the end, where a file is not
    what its manifest says: what could be read of it has come before.
    """
    topics, reader = topics_of(settings), AuditFilesReader(AuditFolder(folder))
    for value in reader.cuts():
        yield _from_file(topics.audit_cuts, CUTS, value)
    for partition in reader.partitions():
        for value in reader.receipts(partition):
            yield _from_file(topics.audit, partition, value)
    for problem in reader.problems:
        raise AuditFileDamaged(problem.name, problem.problem)


def seal_topics(settings: Settings, folder: Path) -> int:
    """Seal all that is on the audit topics now in Avro files, as the sink does.

    What the folder has already is gone on from. Returns the number of records that
    came to it. Raises: `LogError`, `AuditFilesError`.
    """
    target, log = AuditFolder(folder), identify(settings)
    count = 0
    with ExitStack() as closers:
        metrics = PrometheusSinkMetrics()
        parts = SinkParts(settings, log, target, metrics, closers)
        # Cuts first, so that none names a receipt that is not there.
        for number in (None, *map(Partition, range(settings.partitions))):
            count += _sealed(parts.stream(AuditStream(number)))
    return count


def _sealed(stream: SinkStream) -> int:
    count = 0
    stream.resume()
    first, end = stream.reader.bounds(stream.partition)
    stream.check(first, end)
    for batch in stream.reader.read(stream.partition, stream.position, end):
        stream.take(batch)
        count += len(batch)
    stream.settle(end)
    stream.seal()
    return count


def cuts_of(settings: Settings, folder: Path | None) -> Iterator[bytes]:
    """Yield the records of the log of cuts, of the topic or of sealed files.

    Raises: as the functions above.
    """
    if folder is not None:
        reader = AuditFilesReader(AuditFolder(folder))
        yield from reader.cuts()
        for problem in reader.problems:
            raise AuditFileDamaged(problem.name, problem.problem)
        return
    for record in _topic(settings, topics_of(settings).audit_cuts):
        yield record.value or b""


def _topic(settings: Settings, spec: TopicSpec) -> Iterator[DumpedRecord]:
    with closing(KafkaReader(kafka_of(settings), spec.name)) as reader:
        for number in map(Partition, range(spec.partitions)):
            first, end = reader.bounds(number)
            for batch in reader.read(number, first, end):
                for record in batch:
                    yield DumpedRecord(
                        topic=spec.name,
                        partition=number,
                        offset=record.lsn.offset,
                        value=record.value,
                    )


def _from_file(spec: TopicSpec, partition: Partition, value: bytes) -> DumpedRecord:
    return DumpedRecord(
        topic=spec.name, partition=partition, offset=None, value=value or None
    )
