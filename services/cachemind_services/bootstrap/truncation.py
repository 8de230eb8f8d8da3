"""How far the WAL may be deleted, by what is kept here, elsewhere and shipped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cachemind.adapters.kafka_truncate import delete_records
from cachemind.core.hosts import Host
from cachemind.core.snapshots import SnapshotManifest
from cachemind.core.wal_floor import Floor, Kept, floor_of
from cachemind.types import Offset, Partition
from cachemind_services.bootstrap.checkpoints import local_checkpoints
from cachemind_services.bootstrap.group import known_host_id
from cachemind_services.bootstrap.hosts import known_hosts
from cachemind_services.bootstrap.log import kafka_of, topics_of
from cachemind_services.bootstrap.origins import shipped_snapshots
from cachemind_services.bootstrap.tools import OpenLog, open_log
from cachemind_services.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """How far each partition may be deleted, and the hosts that nobody waits for."""

    floors: Sequence[Floor]
    silent: Sequence[Host]


def advice(settings: Settings) -> Advice:
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
        mine = known_host_id(settings)
        hosts = known_hosts(settings, log.identity)
        others = [host for host in hosts if host.host_id != mine]
        live = [host for host in others if host.lives]
        return Advice(
            floors=[
                floor_of(
                    partition,
                    log.reader.bounds(partition),
                    _kept(log, partition, shipped, live),
                    must_ship=bool(settings.snapshot_url),
                    others={host.shown for host in live},
                )
                for partition in log.partitions
            ],
            silent=[host for host in others if not host.lives],
        )


def truncate(
    settings: Settings, before: Mapping[Partition, Offset]
) -> Mapping[Partition, Offset]:
    """Delete every record below these offsets; return the first that is left of each.

    Ask `advice` first. Raises: `LogUnavailable`, `LogRejected`.
    """
    return delete_records(kafka_of(settings), topics_of(settings).wal.name, before)


def _kept(
    log: OpenLog,
    partition: Partition,
    shipped: Sequence[SnapshotManifest],
    live: Sequence[Host],
) -> Iterator[Kept]:
    kept = local_checkpoints(log.settings, log.identity, partition)
    for checkpoint in kept.manifests():
        yield Kept(offset=checkpoint.offset, shipped=False)
    for host in live:
        for one in host.checkpoints:
            if one.partition == partition:
                yield Kept(offset=one.offset, shipped=False, holder=host.shown)
    for manifest in shipped:
        yield Kept(offset=manifest.partitions[partition].offset, shipped=True)
