"""Stores as of a point of the log, made beside the live ones to be looked at.

1. The newest sound checkpoint at or below the point, or nothing, is copied by hard
   links into a folder of the replay's own.
2. A scratch group's committed offset is set to the record after it: where the replay
   begins is there for all to see, and its end afterwards.
3. The log is folded from there to the point, by position.
4. A note that the replay is whole is written; until then another run goes on from
   what is there.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.file_lock import exclusive
from cachemind.adapters.file_sync import write_whole
from cachemind.adapters.kafka_groups import KafkaGroupOffsets
from cachemind.adapters.memory_checkpoints import MemoryCheckpoints
from cachemind.adapters.memory_log import MemoryLog
from cachemind.adapters.nowhere import FixedClock, NoLog, NoUpstream
from cachemind.adapters.registered_later import RegisteredLater
from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rocks_store import RocksStore
from cachemind.adapters.rocks_view import RocksView
from cachemind.adapters.scratch_entries import scratch_entries
from cachemind.adapters.store_swap import is_empty, settle
from cachemind.agents.dead_letters import DeadLetters
from cachemind.agents.folding import Folder
from cachemind.agents.past import Sources
from cachemind.agents.replay import fill
from cachemind.agents.rollback import Rollbacks
from cachemind.codec import Codec
from cachemind.core.partitioner import partition_of
from cachemind.errors import (
    FoldStopped,
    InvalidRequest,
    LogError,
    StoreMismatch,
    StoreUnavailable,
)
from cachemind.types import Lsn, Offset, Partition
from cachemind_services.bootstrap.as_of import AsOf
from cachemind_services.bootstrap.checkpoints import local_checkpoints
from cachemind_services.bootstrap.gateway import GatewayPorts, open_encoder
from cachemind_services.bootstrap.log import kafka_of, store_identity, topics_of
from cachemind_services.bootstrap.origins import Origins, restore
from cachemind_services.bootstrap.past import Elsewhere, StoredPast
from cachemind_services.bootstrap.payloads import open_payloads
from cachemind_services.bootstrap.tools import OpenLog, Unmeasured
from cachemind_services.settings import Settings

logger = logging.getLogger(__name__)

FOLDER: Final = "replays"
NOTE: Final = "replay.json"
GROUP_S: Final = 10.0

Progress = Callable[[Partition, Offset, Offset, Offset], None]
"""Called with (partition, where it began, position, end) as a replay goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A whole replay on disk."""

    folder: Path
    as_of: AsOf

    def store_path(self, partition: int) -> Path:
        """Return the folder of one partition's store."""
        return self.folder / "store" / str(partition)


def materialise(log: OpenLog, as_of: AsOf, progress: Progress) -> Replay:
    """Return the replay of `as_of`, made where it is not there yet.

    Raises: `FoldStopped` where the log does not reach back to any checkpoint;
    `StoreLocked` where another command makes the same one just now;
    `LogUnavailable`, `StoreError`.
    """
    replay = Replay(folder=log.settings.data_dir / FOLDER / as_of.name, as_of=as_of)
    with exclusive(_lock_of(replay)):
        return _made(log, replay, progress)


def forget(replay: Replay) -> None:
    """Remove a replay. Raises: `StoreLocked`, `StoreUnavailable`."""
    with exclusive(_lock_of(replay)):
        try:
            shutil.rmtree(replay.folder)
        except OSError as error:
            raise StoreUnavailable(f"{replay.folder}: {error}") from error
        _lock_of(replay).unlink(missing_ok=True)


def _lock_of(replay: Replay) -> Path:
    return replay.folder.with_name(replay.folder.name + ".lock")


def _made(log: OpenLog, replay: Replay, progress: Progress) -> Replay:
    as_of = replay.as_of
    if (replay.folder / NOTE).exists():
        found = _read(replay.folder)
        if found.as_of == as_of:
            return found
        shutil.rmtree(replay.folder)  # a topic made anew has the same names
    origins = Origins(log.settings, log.identity)
    for partition, end in as_of.ends.items():
        _materialise(log, replay, origins, partition, end, progress)
    _write(replay)
    return replay


def newest(settings: Settings, name: str | None) -> Replay:
    """Return the replay with this name, by default the one made last.

    Raises: `InvalidRequest` where there is none.
    """
    notes = sorted(
        (settings.data_dir / FOLDER).glob(f"{name or '*'}/{NOTE}"),
        key=lambda note: note.stat().st_mtime_ns,
    )
    if not notes:
        raise InvalidRequest(
            "--replay" if name else "--to-version", "there is no such replay yet"
        )
    return _read(notes[-1].parent)


@contextmanager
def replay_views(settings: Settings, replay: Replay) -> Iterator[Sequence[RocksView]]:
    """Open a view of every partition; those not replayed show nothing."""
    memory = RocksMemory()
    views = [
        RocksView(replay.store_path(number), memory)
        for number in range(settings.partitions)
    ]
    try:
        for partition in replay.as_of.ends:
            views[partition].catch_up()
        yield views
    finally:
        for view in views:
            view.close()


def _materialise(
    log: OpenLog,
    replay: Replay,
    origins: Origins,
    partition: Partition,
    end: Offset,
    progress: Progress,
) -> None:
    settings, path = log.settings, replay.store_path(partition)
    settle(path)
    first, _ = log.reader.bounds(partition)
    if is_empty(path):
        restore(path, origins.of(partition, first=first, below=end))
    identity = store_identity(settings, log.identity, partition)
    store = RocksStore(path, identity, RocksMemory())
    with closing(store):
        folder = _folder(log, partition, store, path.parent)
        if folder.position > end:
            raise StoreMismatch(f"{path}: is past {Lsn(partition, end)}; remove it")
        began = folder.position
        if began < first and began < end:
            raise FoldStopped(
                str(Lsn(partition, began)),
                f"the log begins at {first}, and no snapshot from there to {end} is "
                "kept",
            )
        with _scratch_group(settings, replay.as_of.name) as group:
            group({partition: began})
            fill(
                folder,
                log.reader,
                end,
                progress=lambda f, e: progress(partition, began, f.position, e),
            )
            group({partition: end})


def _folder(
    log: OpenLog, partition: Partition, store: RocksStore, folder: Path
) -> Folder:
    settings = log.settings
    letters = DeadLetters(MemoryLog(1, SystemClock()).writer(), "replay")
    sources = Sources(
        partition=partition,
        store=store,
        checkpoints=local_checkpoints(settings, log.identity, partition),
        log=log.reader,
        decoder=log.codec,
        aside=partial(scratch_entries, folder),
    )
    return Folder(
        partition,
        settings.partitions,
        store,
        log.codec,
        letters,
        Unmeasured(),
        Rollbacks(sources, store),
    )


@contextmanager
def _scratch_group(
    settings: Settings, name: str
) -> Iterator[Callable[[Mapping[Partition, Offset]], None]]:
    """Yield what sets the replay's group; a group that cannot be set stops nothing."""
    group = f"{settings.topic_prefix}.replay.{name}"
    wal = topics_of(settings).wal.name
    offsets = KafkaGroupOffsets(kafka_of(settings), group, wal, GROUP_S)

    def commit(places: Mapping[Partition, Offset]) -> None:
        try:
            offsets.commit(places)
        except LogError as error:
            logger.warning("the replay's group was not set: %s", error)

    with closing(offsets):
        yield commit


def _write(replay: Replay) -> None:
    note = {
        "name": replay.as_of.name,
        "at_ns": replay.as_of.at_ns,
        "ends": {str(p): end for p, end in replay.as_of.ends.items()},
    }
    replay.folder.mkdir(parents=True, exist_ok=True)
    write_whole(replay.folder / NOTE, json.dumps(note).encode())


def _read(folder: Path) -> Replay:
    note = json.loads((folder / NOTE).read_text(encoding="utf-8"))
    ends = {Partition(int(p)): Offset(end) for p, end in note["ends"].items()}
    as_of = AsOf(name=note["name"], ends=ends, at_ns=note["at_ns"])
    return Replay(folder=folder, as_of=as_of)


def open_replay(settings: Settings, replay: Replay) -> GatewayPorts:
    """Return the ports of a gateway over a replay: they lead nowhere else.

    Call it inside the running event loop. Raises: `InvalidRequest` where the
    namespace is not in the replay; `StoreUnavailable`.
    """
    memory, ends = RocksMemory(), replay.as_of.ends
    home = partition_of(settings.namespace.encode(), settings.partitions)
    if home not in ends:
        raise InvalidRequest(
            "--namespace",
            f"{settings.namespace} is in partition {home}, and the replay "
            f"{replay.as_of.name} is of others",
        )
    views = [
        RocksView(replay.store_path(number), memory)
        for number in range(settings.partitions)
    ]
    opened = open_payloads(settings, makes=False)
    return GatewayPorts(
        views=views,
        wal=NoLog(),
        codec=RegisteredLater(Codec()),
        embedder=open_encoder(settings),
        upstream=NoUpstream(),
        payloads=opened.payloads,
        payload_keys=opened.keys,
        clock=FixedClock(replay.as_of.at_ns),
        log_ends=lambda: {home: Offset(views[home].catch_up() + 1)},
        past=lambda number: _past(replay, number, settings.partitions),
    )


def _past(replay: Replay, partition: Partition, partitions: int) -> StoredPast:
    view = RocksView(replay.store_path(partition), RocksMemory())
    return StoredPast(
        view,
        Sources(
            partition=partition,
            store=view,
            checkpoints=MemoryCheckpoints(),
            log=MemoryLog(partitions, SystemClock()).reader(),
            decoder=Codec(),
        ),
        Elsewhere(
            snapshot=lambda name: None, progress=lambda: None, close=lambda: None
        ),
    )
