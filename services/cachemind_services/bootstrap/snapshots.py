"""Listing, shipping and restoring snapshots, with or without a materializer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import LogIdentity
from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rocks_store import RocksStore
from cachemind.adapters.snapshot_catalog import SnapshotCatalog
from cachemind.adapters.snapshot_store import SnapshotStore
from cachemind.adapters.store_swap import forget_before, is_empty, settle
from cachemind.core.snapshots import (
    SnapshotManifest,
    find,
    is_of_log,
    newest_first,
)
from cachemind.errors import (
    InvalidRequest,
    InvalidSetting,
    SnapshotRefused,
    SnapshotUnavailable,
)
from cachemind.types import Offset, Partition
from cachemind_services.bootstrap.checkpoints import local_checkpoints
from cachemind_services.bootstrap.log import (
    codec_of,
    identify,
    kafka_of,
    store_path,
    topics_of,
)
from cachemind_services.bootstrap.origins import (
    of_snapshot,
    restore,
    shipped_snapshots,
)
from cachemind_services.bootstrap.preparation import store_lock
from cachemind_services.bootstrap.snapshot_desk import DeskDeps, Topics
from cachemind_services.settings import Settings

WAIT_S: Final = 10.0
Row = Mapping[str, Any]


def desk_deps(
    settings: Settings,
    log: LogIdentity,
    stores: Mapping[Partition, RocksStore],
    changed: Callable[[], None],
) -> DeskDeps:
    """Return what the materializer takes and removes snapshots with.

    `changed` is called after checkpoints were made or removed.
    Raises: `InvalidSetting`.
    """
    url, memory = settings.snapshot_url, RocksMemory()
    return DeskDeps(
        log=log,
        wal_topic=topics_of(settings).wal.name,
        stores=stores,
        checkpoints={p: local_checkpoints(settings, log, p, memory) for p in stores},
        connect=lambda: _topics(settings),
        codec=codec_of(settings),
        clock=SystemClock(),
        shipped=SnapshotStore(url) if url else None,
        changed=changed,
    )


@contextmanager
def _topics(settings: Settings) -> Iterator[Topics]:
    kafka, topics = kafka_of(settings), topics_of(settings)
    with (
        closing(KafkaReader(kafka, topics.snapshots.name)) as reader,
        ExitStack() as writers,
    ):
        snapshots = KafkaWriter(kafka, topics.snapshots.name)
        writers.callback(snapshots.close, WAIT_S)
        wal = KafkaWriter(kafka, topics.wal.name)
        writers.callback(wal.close, WAIT_S)
        yield Topics(catalog=SnapshotCatalog(reader, snapshots), wal=wal)


def known_snapshots(
    settings: Settings, url: str | None
) -> tuple[Sequence[Row], Sequence[str]]:
    """Return a row a snapshot of this log, newest first, and what cannot be read.

    Raises: `LogUnavailable`, `SnapshotUnavailable`, `InvalidSetting`.
    """
    log = identify(settings)
    published = {one.snapshot_id: one for one in published_snapshots(settings, log)}
    shipped, refused = _listed(settings, log, url)
    kept = {
        Partition(number): {
            one.offset for one in local_checkpoints(settings, log, number).manifests()
        }
        for number in range(settings.partitions)
    }
    rows = [
        _row(one)
        | {
            "here": all(
                each.offset < 0 or each.offset in kept[each.partition]
                for each in one.partitions
            ),
            "shipped": one.snapshot_id in shipped,
        }
        for one in newest_first({**shipped, **published}.values())
        if is_of_log(one, log.cluster_id, one.topic_id, settings.partitions)
    ]
    return rows, refused


def _listed(
    settings: Settings, log: LogIdentity, url: str | None
) -> tuple[Mapping[str, SnapshotManifest], Sequence[str]]:
    """Return what is shipped of this log, by id, and what of it cannot be read.

    A folder that `url` names must be there; in that of the setting it may be that
    nothing was shipped yet.
    """
    where = url or settings.snapshot_url
    if not where:
        return {}, ()
    store = SnapshotStore(where)
    listing = store.list(log.topic_ids[topics_of(settings).wal.name])
    refused = [str(problem) for problem in listing.refused]
    if url and store.absent:
        refused.append(f"snapshots at {url}: there is no such folder")
    return {one.snapshot_id: one for one in listing.snapshots}, refused


def published_snapshots(
    settings: Settings, log: LogIdentity
) -> Sequence[SnapshotManifest]:
    """Return this log's snapshots by the topic that names them, newest first.

    Raises: `LogUnavailable`.
    """
    topics = topics_of(settings)
    with _catalog(settings) as catalog:
        found = catalog.manifests()
    topic_id = log.topic_ids[topics.wal.name]
    return [
        one
        for one in found
        if is_of_log(one, log.cluster_id, topic_id, settings.partitions)
    ]


def ship(settings: Settings, url: str | None, name: str | None) -> Row:
    """Ship a snapshot, by default the newest; return what was sent.

    Its checkpoints are kept from pruning meanwhile, and each file is verified.
    Raises: `SnapshotRefused`, `SnapshotUnavailable`, `LogUnavailable`.
    """
    store = SnapshotStore(_where(settings, url))
    log = identify(settings)
    manifest = _wanted(published_snapshots(settings, log), name)
    with ExitStack() as held:
        folders = {
            one.partition: held.enter_context(
                _held(settings, log, one.partition, one.offset)
            )
            for one in manifest.partitions
        }
        sent = store.ship(manifest, folders.__getitem__)
    return {
        "snapshot": manifest.shown,
        "sent_files": sent.sent_files,
        "sent_bytes": sent.sent_bytes,
        "shared_files": sent.shared_files,
    }


@contextmanager
def _held(
    settings: Settings, log: LogIdentity, partition: Partition, offset: Offset
) -> Iterator[Path]:
    """Yield a local checkpoint's folder, kept meanwhile; none of an empty store."""
    if offset < 0:
        yield Path()
        return
    kept = local_checkpoints(settings, log, partition)
    with kept.hold(offset) as (_, folder):
        yield folder


def restore_shipped(
    settings: Settings, url: str | None, name: str | None, *, replace: bool
) -> Row:
    """Make every partition's store from one shipped snapshot.

    Without a `name` the newest is taken, and the next older one where it is not
    sound. Stores that are there are only replaced when told to. No materializer may
    run here. Raises: `StoreLocked`, `InvalidRequest`, `SnapshotRefused`,
    `SnapshotUnavailable`.
    """
    where = _where(settings, url)
    store, manifests = shipped_snapshots(settings, identify(settings), where)
    if not manifests:
        problem = "no such folder" if store.absent else "none of this log"
        raise SnapshotUnavailable(where, f"there is {problem}")
    wanted = manifests if name is None else [_wanted(manifests, name)]
    with store_lock(settings):
        _require_room(settings, replace=replace)
        for manifest in wanted:
            if _restored(settings, store, manifest):
                return _row(manifest)
    shown = ", ".join(one.shown for one in wanted)
    raise SnapshotRefused(shown, "none is sound and whole")


def _restored(
    settings: Settings, store: SnapshotStore, manifest: SnapshotManifest
) -> bool:
    """Return whether every partition's store was made from `manifest`.

    Its partitions may be of different snapshots where one is not sound; whatever
    they hold, the log brings each to the same end.
    """
    paths = [store_path(settings, one.partition) for one in manifest.partitions]
    for path, one in zip(paths, manifest.partitions, strict=True):
        if restore(path, [of_snapshot(store, manifest, one.partition)]) is None:
            return False
    for path in paths:
        forget_before(path)
    return True


def _require_room(settings: Settings, *, replace: bool) -> None:
    """Check that there are no stores, unless they are to be replaced."""
    for number in range(settings.partitions):
        path = store_path(settings, number)
        settle(path)
        if not replace and not is_empty(path):
            raise InvalidRequest(
                "--replace", f"{path} is a store already; give the flag to replace it"
            )


def _wanted(found: Sequence[SnapshotManifest], name: str | None) -> SnapshotManifest:
    manifest = find(found, name) if name else next(iter(found), None)
    if manifest is None:
        raise InvalidRequest("name", f"there is no snapshot {name or 'yet'}")
    return manifest


def _where(settings: Settings, url: str | None) -> str:
    where = url or settings.snapshot_url
    if not where:
        raise InvalidSetting("snapshot_url", "set it, or name a folder or URL")
    return where


@contextmanager
def _catalog(settings: Settings) -> Iterator[SnapshotCatalog]:
    topic = topics_of(settings).snapshots.name
    with closing(KafkaReader(kafka_of(settings), topic, request_s=WAIT_S)) as reader:
        yield SnapshotCatalog(reader)


def _row(manifest: SnapshotManifest) -> dict[str, Any]:
    return {
        "name": manifest.name,
        "snapshot_id": manifest.snapshot_id,
        "created_at_ns": manifest.created_at_ns,
        "expires_at_ns": manifest.expires_at_ns,
        "size_bytes": manifest.size_bytes,
        "lsns": [f"{one.partition}@{one.offset}" for one in manifest.partitions],
        "namespaces": {
            each.namespace: each.version
            for one in manifest.partitions
            for each in one.namespaces
        },
    }
