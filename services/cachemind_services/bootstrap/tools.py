"""What the operator's commands stand on: the log to read, the stores to inspect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import LogIdentity
from cachemind.adapters.memory_checkpoints import MemoryCheckpoints
from cachemind.adapters.memory_log import MemoryLog
from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rocks_store import RocksStore
from cachemind.adapters.rocks_view import RocksView
from cachemind.adapters.scratch_entries import scratch_entries
from cachemind.agents.dead_letters import DeadLetters
from cachemind.agents.folding import Folder
from cachemind.agents.past import Sources
from cachemind.agents.replay import fill
from cachemind.agents.rollback import Rollbacks
from cachemind.codec import Codec
from cachemind.core.rollback_report import RollbackStatus
from cachemind.core.state import Effect
from cachemind.ports import LogFollower, LogReader, LogTimes, StoreInspector
from cachemind.types import Offset, Partition
from cachemind_services.bootstrap.log import (
    codec_of,
    identify,
    kafka_of,
    open_views,
    store_identity,
    topics_of,
)
from cachemind_services.settings import Settings

Progress = Callable[[Offset, Offset], None]
"""Called with (position, end) as a rebuild goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLog:
    """The WAL, opened to be read."""

    settings: Settings
    reader: LogReader
    times: LogTimes
    follower: LogFollower
    codec: Codec
    identity: LogIdentity

    @property
    def partitions(self) -> Sequence[Partition]:
        """Return every partition's number."""
        return [Partition(number) for number in range(self.settings.partitions)]


@contextmanager
def open_log(settings: Settings) -> Iterator[OpenLog]:
    """Open the WAL after checking its topics.

    Raises: `TopicMisconfigured`, `LogUnavailable`, `LogRejected`, `BrokerError`.
    """
    identity = identify(settings)
    reader = KafkaReader(kafka_of(settings), topics_of(settings).wal.name)
    try:
        yield OpenLog(
            settings=settings,
            reader=reader,
            times=reader,
            follower=reader,
            codec=codec_of(settings),
            identity=identity,
        )
    finally:
        reader.close()


@contextmanager
def open_inspectors(
    settings: Settings, identity: LogIdentity | None
) -> Iterator[Sequence[StoreInspector]]:
    """Open a read-only view of each partition's store; call `catch_up` to begin."""
    views = open_views(settings, identity)
    try:
        yield views
    finally:
        for view in views:
            view.close()


@contextmanager
def rebuilt(
    log: OpenLog, partition: Partition, end: Offset, folder: Path, progress: Progress
) -> Iterator[StoreInspector]:
    """Fold the log from its start up to `end` into a new store under `folder`.

    Yields a view of it. What cannot be decoded is not sent to the dead-letter topic
    again. Raises: `FoldStopped`, `LogUnavailable`, `StoreError`.
    """
    path, memory = folder / f"rebuilt-{partition}", RocksMemory()
    identity = store_identity(log.settings, log.identity, partition)
    store = RocksStore(path, identity, memory)
    try:
        letters = DeadLetters(MemoryLog(1, SystemClock()).writer(), "rebuild")
        # From the log alone: no checkpoint may help, or hide what is wrong.
        sources = Sources(
            partition=partition,
            store=store,
            checkpoints=MemoryCheckpoints(),
            log=log.reader,
            decoder=log.codec,
            aside=partial(scratch_entries, folder),
        )
        fold = Folder(
            partition,
            len(log.partitions),
            store,
            log.codec,
            letters,
            Unmeasured(),
            Rollbacks(sources, store),
        )
        fill(fold, log.reader, end, progress=lambda f, e: progress(f.position, e))
    finally:
        store.close()
    view = RocksView(path, memory, identity=identity)
    try:
        view.catch_up()
        yield view
    finally:
        view.close()


class Unmeasured:
    """`FoldMetrics` of a rebuild, which nobody watches."""

    def folded(self, partition: Partition, kind: str, effect: Effect) -> None:
        """Count nothing."""

    def dead_lettered(self, partition: Partition, reason: str) -> None:
        """Count nothing."""

    def fold_lag(self, partition: Partition, records: int) -> None:
        """Count nothing."""

    def rolled_back(self, partition: Partition, status: RollbackStatus) -> None:
        """Count nothing."""

    def quarantined(self, partition: Partition, namespaces: int) -> None:
        """Count nothing."""

    def halted(self, partition: Partition, *, stands: bool) -> None:
        """Count nothing."""

    def progressed(self, partition: Partition, applied: Offset) -> None:
        """Count nothing."""
