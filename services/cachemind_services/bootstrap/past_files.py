"""Opens the past of a namespace: its partition's store, checkpoints and log."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from functools import partial
from typing import Final

from cachemind.adapters.checkpoints import RocksCheckpoints
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import LogIdentity
from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rocks_view import RocksView
from cachemind.adapters.rollback_progress import read_progress
from cachemind.adapters.scratch_entries import scratch_entries
from cachemind.adapters.snapshot_catalog import SnapshotCatalog
from cachemind.agents.past import Sources
from cachemind.core.partitioner import partition_of
from cachemind.core.rollback import Base
from cachemind.core.rollback_report import RollbackProgress
from cachemind.core.snapshots import SnapshotManifest, find
from cachemind.ports import StoreInspector
from cachemind.types import Namespace, Offset, Partition
from cachemind_services.bootstrap.checkpoints import (
    local_checkpoints,
    progress_path,
)
from cachemind_services.bootstrap.log import (
    codec_of,
    identify,
    kafka_of,
    store_identity,
    store_path,
    topics_of,
)
from cachemind_services.bootstrap.past import Elsewhere, StoredPast
from cachemind_services.settings import VIEWS, Settings

WAIT_S: Final = 5.0
"""How long the log may give no answer: somebody waits for the whole."""

_MEMORY_BYTES: Final = 32 * 2**20


def open_past(
    settings: Settings, log: LogIdentity | None, namespace: Namespace
) -> StoredPast:
    """Return the past of `namespace`; contacts nobody yet. Close it in the end."""
    partition = Partition(partition_of(namespace.encode(), settings.partitions))
    return open_past_of(settings, log, partition)


def open_past_of(
    settings: Settings, log: LogIdentity | None, partition: Partition
) -> StoredPast:
    """Return the past of a partition's namespaces; contacts nobody yet."""
    kafka, topics = kafka_of(settings), topics_of(settings)
    view = RocksView(
        store_path(settings, partition),
        RocksMemory(_MEMORY_BYTES, _MEMORY_BYTES),
        identity=None if log is None else store_identity(settings, log, partition),
    )
    with ExitStack() as opened:
        reader = opened.enter_context(
            closing(
                KafkaReader(kafka, topics.wal.name, stall_s=WAIT_S, request_s=WAIT_S)
            )
        )
        manifests = opened.enter_context(
            closing(KafkaReader(kafka, topics.snapshots.name, request_s=WAIT_S))
        )
        sources = Sources(
            partition=partition,
            store=view,
            checkpoints=_Checkpoints(settings, log, partition),
            log=reader,
            decoder=codec_of(settings),
            aside=partial(scratch_entries, settings.data_dir / VIEWS),
        )
        catalog = SnapshotCatalog(manifests)

        def snapshot(name: str) -> SnapshotManifest | None:
            return find(catalog.manifests(), name)

        def progress() -> RollbackProgress | None:
            return read_progress(progress_path(settings, partition))

        elsewhere = Elsewhere(
            snapshot=snapshot, progress=progress, close=opened.pop_all().close
        )
        return StoredPast(view, sources, elsewhere)


class _Checkpoints:
    """This host's checkpoints, also where Kafka was away when the process began."""

    def __init__(
        self, settings: Settings, log: LogIdentity | None, partition: Partition
    ) -> None:
        self._settings = settings
        self._log = log
        self._partition = partition
        self._found: RocksCheckpoints | None = None

    def bases(self, namespace: Namespace) -> Sequence[Base]:
        """Return what each checkpoint holds of `namespace`. Raises: `LogError`."""
        return self._local().bases(namespace)

    def open(self, offset: Offset) -> AbstractContextManager[StoreInspector]:
        """Open the checkpoint at `offset`. Raises: `CheckpointRefused`, `LogError`."""
        return self._local().open(offset)

    def _local(self) -> RocksCheckpoints:
        if self._found is None:
            # Of which log they must be, only Kafka can say.
            log = self._log or identify(self._settings, WAIT_S)
            memory = RocksMemory(_MEMORY_BYTES, _MEMORY_BYTES)
            self._found = local_checkpoints(
                self._settings, log, self._partition, memory
            )
        return self._found
