"""How far the WAL may be deleted, by what is kept here and shipped; and deleting it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cachemind.adapters.kafka_truncate import delete_records
from cachemind.core.snapshots import SnapshotManifest
from cachemind.core.wal_floor import Floor, Kept, floor_of
from cachemind.types import Offset, Partition
from cachemind_services.bootstrap.checkpoints import local_checkpoints
from cachemind_services.bootstrap.log import kafka_of, topics_of
from cachemind_services.bootstrap.origins import shipped_snapshots
from cachemind_services.bootstrap.tools import OpenLog, open_log
from cachemind_services.settings import Settings


def advice(settings: Settings) -> Sequence[Floor]:
    """Return, for each partition, below which offset nothing that is kept needs it.

    Raises: `LogUnavailable`; `SnapshotUnavailable` where `snapshot_url` is set and
    does not answer: what is shipped is then unknown.
    """
    with open_log(settings) as log:
        shipped: list[SnapshotManifest] = []
        if settings.snapshot_url:
            _, shipped = shipped_snapshots(
                settings, log.identity, settings.snapshot_url
            )
        return [
            floor_of(
                partition,
                log.reader.bounds(partition),
                _kept(log, partition, shipped),
                must_ship=bool(settings.snapshot_url),
            )
            for partition in log.partitions
        ]


def truncate(
    settings: Settings, before: Mapping[Partition, Offset]
) -> Mapping[Partition, Offset]:
    """Delete every record below these offsets; return the first that is left of each.

    Ask `advice` first. Raises: `LogUnavailable`, `LogRejected`.
    """
    return delete_records(kafka_of(settings), topics_of(settings).wal.name, before)


def _kept(
    log: OpenLog, partition: Partition, shipped: Sequence[SnapshotManifest]
) -> Iterator[Kept]:
    kept = local_checkpoints(log.settings, log.identity, partition)
    for checkpoint in kept.manifests():
        yield Kept(offset=checkpoint.offset, shipped=False)
    for manifest in shipped:
        yield Kept(offset=manifest.partitions[partition].offset, shipped=True)
