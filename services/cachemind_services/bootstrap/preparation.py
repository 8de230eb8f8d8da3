"""What happens to a host's stores before the materializer opens them.

1. A replacement that was cut off is finished.
2. A partition whose group offset somebody moved back, with Kafka's own tools, gets
   the newest sound checkpoint at or below that offset, or begins anew. Readers serve
   nothing from it until it is where the former store was.
3. A partition without a store, or with one that the log does not follow on from any
   more, gets the newest sound checkpoint or shipped snapshot.

The log brings all of them to its end. What was replaced is kept until then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from cachemind.adapters.doorbell import Doorbell
from cachemind.adapters.file_lock import exclusive
from cachemind.adapters.kafka_groups import KafkaGroupOffsets
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import LogIdentity
from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rocks_view import RocksView
from cachemind.adapters.store_swap import (
    forget_before,
    is_empty,
    replace_store,
    settle,
)
from cachemind.core.rewind import rewound
from cachemind.errors import LogRejected
from cachemind.ports import GroupOffsets, LogReader, OffsetMemory
from cachemind.types import Lsn, Offset, Partition
from cachemind_services.bootstrap.group import group_of, offset_memory
from cachemind_services.bootstrap.log import kafka_of, store_path, topics_of
from cachemind_services.bootstrap.origins import Origin, Origins, restore
from cachemind_services.settings import Settings

logger = logging.getLogger(__name__)


@contextmanager
def store_lock(settings: Settings) -> Iterator[None]:
    """Own the host's stores: at most one process replaces or writes them.

    Raises: `StoreLocked`.
    """
    with exclusive(settings.data_dir / "store" / "lock"):
        yield


def prepare(settings: Settings, log: LogIdentity) -> None:
    """Do what `prepare_stores` does, with connections of its own."""
    kafka, wal = kafka_of(settings), topics_of(settings).wal.name
    with (
        closing(KafkaReader(kafka, wal)) as reader,
        closing(KafkaGroupOffsets(kafka, group_of(settings), wal)) as group,
    ):
        memory = offset_memory(settings, log)
        prepare_stores(settings, log, reader, group, memory)


def prepare_stores(
    settings: Settings,
    log: LogIdentity,
    reader: LogReader,
    group: GroupOffsets,
    memory: OffsetMemory,
) -> None:
    """Bring every store to where the fold should begin. Call it under `store_lock`.

    Raises: `LogUnavailable`, `StoreUnavailable`, `StoreMismatch`.
    """
    partitions = tuple(map(Partition, range(settings.partitions)))
    for partition in partitions:
        settle(store_path(settings, partition))
    origins = Origins(settings, log)
    moved = _moved(group, memory, partitions)
    for partition, target in moved.items():
        first, _ = reader.bounds(partition)
        found = origins.of(partition, first=first, below=target)
        _rewind(store_path(settings, partition), Lsn(partition, target), first, found)
    if moved:
        memory.save({**memory.load(), **moved})
    for partition in partitions:
        path = store_path(settings, partition)
        first, end = reader.bounds(partition)
        if partition not in moved and _is_behind(path, first):
            restore(path, origins.of(partition, first=first, below=end))


def forget_replaced(settings: Settings) -> None:
    """Remove what `prepare_stores` has replaced; the new stores are caught up."""
    for number in range(settings.partitions):
        forget_before(store_path(settings, number))


def _moved(
    group: GroupOffsets, memory: OffsetMemory, partitions: tuple[Partition, ...]
) -> Mapping[Partition, Offset]:
    remembered = memory.load()
    if not remembered:
        return {}
    try:
        return rewound(group.committed(partitions), remembered)
    except LogRejected as error:
        logger.warning("whether the group was moved back is not known: %s", error)
        return {}


def _is_behind(path: Path, first: Offset) -> bool:
    """Return whether the log, which begins at `first`, cannot bring the store on."""
    # From a log that is whole every store can be brought on: do not open it to ask.
    return is_empty(path) or (first > 0 and _applied(path) + 1 < first)


def _rewind(path: Path, place: Lsn, first: Offset, found: Sequence[Origin]) -> None:
    """Make the store at `path` one of before `place`; the log begins at `first`."""
    logger.warning("the group was moved back to %s", place)
    shown = _applied(path)
    fenced = [replace(one, fill=_fenced(one.fill, shown)) for one in found]
    if restore(path, fenced) is not None:
        return
    if first == 0:
        logger.warning(
            "partition %d is folded anew from the log's start", place.partition
        )
        replace_store(path, _fenced(lambda _: None, shown))
        return
    logger.error(
        "no sound checkpoint is at or below %s and the log begins at %d: "
        "the store is left as it is",
        place,
        first,
    )


def _fenced(fill: Callable[[Path], None], shown: Offset) -> Callable[[Path], None]:
    """Return `fill`, and that readers serve nothing of it until it is at `shown`.

    They have shown that much: what was invalidated since must not come back to them.
    """

    def both(folder: Path) -> None:
        fill(folder)
        bell = Doorbell(folder, owner=True)
        bell.fence_all(shown)
        bell.close()

    return both


def _applied(path: Path) -> Offset:
    """Return how far the store at `path` is, -1 where there is none."""
    if is_empty(path):
        return Offset(-1)
    with closing(RocksView(path, RocksMemory())) as view:
        return view.catch_up()
