"""What a store can be made from, other than the log: checkpoints and snapshots."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from cachemind.adapters.checkpoints import RocksCheckpoints
from cachemind.adapters.doorbell import NAME as DOORBELL
from cachemind.adapters.doorbell import Doorbell
from cachemind.adapters.kafka_topics import LogIdentity
from cachemind.adapters.snapshot_store import SnapshotStore
from cachemind.adapters.store_rows import FORMAT
from cachemind.adapters.store_swap import link_files, replace_store
from cachemind.core.checkpoint import CheckpointManifest
from cachemind.core.snapshots import SnapshotManifest, is_of_log
from cachemind.errors import (
    CheckpointRefused,
    SnapshotError,
    SnapshotRefused,
)
from cachemind.types import Lsn, Offset, Partition
from cachemind_services.bootstrap.checkpoints import local_checkpoints
from cachemind_services.bootstrap.log import topics_of
from cachemind_services.settings import Settings

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Something that a partition's store can be made from.

    `offset` is that of the last record folded into it. `fill` brings its files into
    an empty folder, each verified; it raises `CheckpointRefused` or `SnapshotRefused`.
    """

    offset: Offset
    shown: str
    fill: Callable[[Path], None]


def restore(path: Path, found: Iterable[Origin]) -> Origin | None:
    """Make the store at `path` from the first sound one of `found`; return which.

    One that is missing a part or damaged is named in the log, and the next is taken.
    None: there was no sound one, and nothing has changed. Raises: `StoreUnavailable`.
    """
    for origin in found:
        try:
            replace_store(path, partial(_fill, origin))
        except (CheckpointRefused, SnapshotError) as error:
            logger.warning("%s is not used: %s", origin.shown, error)
        else:
            logger.info("%s was made from %s", path, origin.shown)
            return origin
    return None


def _fill(origin: Origin, folder: Path) -> None:
    """Bring the files, and a doorbell by which readers find the store."""
    origin.fill(folder)
    bell = Doorbell(folder, owner=True)
    bell.ring(origin.offset)
    bell.close()


class Origins:
    """What there is on this host and shipped. Where snapshots are is asked once."""

    def __init__(self, settings: Settings, log: LogIdentity) -> None:
        self._settings = settings
        self._log = log

    def of(self, partition: Partition, *, first: Offset, below: Offset) -> list[Origin]:
        """Return what there is for `partition` of this log, the newest first.

        Only what holds nothing at or above the offset `below`, and from where the log
        can be followed, which begins at `first`. A checkpoint of this host comes
        before a shipped snapshot of the same offset, which takes longer.
        """
        kept = local_checkpoints(self._settings, self._log, partition)
        local = [_of_checkpoint(kept, one) for one in kept.manifests()]
        shipped = [of_snapshot(*one, partition) for one in self._shipped]
        usable = [o for o in (*local, *shipped) if first - 1 <= o.offset < below]
        return sorted(usable, key=lambda one: one.offset, reverse=True)

    @cached_property
    def _shipped(self) -> list[tuple[SnapshotStore, SnapshotManifest]]:
        url = self._settings.snapshot_url
        if not url:
            return []
        try:
            store, manifests = shipped_snapshots(self._settings, self._log, url)
        except SnapshotError as error:
            # What is here may still do, and the log's start always does.
            logger.warning("%s", error)
            return []
        return [(store, one) for one in manifests]


def shipped_snapshots(
    settings: Settings, log: LogIdentity, url: str
) -> tuple[SnapshotStore, list[SnapshotManifest]]:
    """Return the store at `url` and its snapshots of this log, the newest first.

    Manifests that cannot be read are named in the log.
    Raises: `SnapshotUnavailable`, `InvalidSetting`.
    """
    store = SnapshotStore(url)
    topic_id = log.topic_ids[topics_of(settings).wal.name]
    listing = store.list(topic_id)
    for problem in listing.refused:
        logger.warning("%s", problem)
    return store, [
        one
        for one in listing.snapshots
        if is_of_log(one, log.cluster_id, topic_id, settings.partitions)
    ]


def of_snapshot(
    store: SnapshotStore, manifest: SnapshotManifest, partition: Partition
) -> Origin:
    """Return a shipped snapshot as the origin of one partition's store."""

    def fill(folder: Path) -> None:
        if manifest.store_format != FORMAT:
            raise SnapshotRefused(
                manifest.shown,
                f"its stores have format {manifest.store_format}, this build "
                f"writes {FORMAT}",
            )
        store.fetch_into(manifest, partition, folder)
        (folder / DOORBELL).unlink(missing_ok=True)  # of the host that shipped it

    return Origin(
        offset=manifest.partitions[partition].offset,
        shown=f"snapshot {manifest.shown}, partition {partition}",
        fill=fill,
    )


def _of_checkpoint(kept: RocksCheckpoints, manifest: CheckpointManifest) -> Origin:
    def fill(folder: Path) -> None:
        with kept.hold(manifest.offset) as (found, source):
            link_files(source, [file.name for file in found.held.files], folder)

    place = Lsn(manifest.held.partition, manifest.offset)
    return Origin(offset=manifest.offset, shown=f"checkpoint {place}", fill=fill)
