"""The materializer's snapshots, on real stores and a log in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from cachemind.adapters.checkpoints import RocksCheckpoints
from cachemind.adapters.clock import ManualClock, SystemClock
from cachemind.adapters.kafka_topics import LogIdentity
from cachemind.adapters.memory_log import MemoryLog
from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rocks_store import RocksStore
from cachemind.adapters.snapshot_catalog import SnapshotCatalog
from cachemind.adapters.snapshot_store import SnapshotStore
from cachemind.adapters.store_rows import StoreIdentity
from cachemind.agents.status import MaterializerStatus, PartitionStatus
from cachemind.codec import Codec
from cachemind.errors import InvalidRequest, LogUnavailable
from cachemind.events import SnapshotTaken
from cachemind.types import Offset, Partition
from cachemind_services.bootstrap.snapshot_desk import (
    DAY_NS,
    DeskDeps,
    SnapshotDesk,
    Topics,
)
from tests.adapters.rocks_writing import fold_batch

T = TypeVar("T")
MEMORY = RocksMemory(cache_bytes=8 << 20, write_buffer_bytes=8 << 20)
NOW_NS = 1_700_000_000 * 10**9
FULL, EMPTY = Partition(0), Partition(1)


class Fold:
    """A materializer that folds nothing meanwhile; `then` happens after the cut."""

    def __init__(self) -> None:
        self.then: Callable[[], object] = list

    def status(self) -> MaterializerStatus:
        one = PartitionStatus(
            applied=Offset(4), position=Offset(5), end=Offset(7), caught_up=True
        )
        return MaterializerStatus(log_answers=True, partitions={FULL: one})

    async def on_fold_thread(self, do: Callable[[], T]) -> T:
        done = do()
        self.then()
        return done


class Place:
    """Two partitions, of which only the first has events."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(NOW_NS)
        self.snapshots = MemoryLog(1, SystemClock())
        self.wal = MemoryLog(2, SystemClock())
        self.stores = {
            p: RocksStore(folder / "store" / str(p), _identity(p), MEMORY)
            for p in (FULL, EMPTY)
        }
        self.checkpoints = {
            p: RocksCheckpoints(folder / "checkpoints" / str(p), _identity(p), MEMORY)
            for p in (FULL, EMPTY)
        }
        self.shipped = SnapshotStore(str(folder / "shipped"))
        self.fold_thread = Fold()
        self.desk = SnapshotDesk(
            self.fold_thread,
            DeskDeps(
                log=LogIdentity(cluster_id="cluster", topic_ids={"wal": "topic"}),
                wal_topic="wal",
                stores=self.stores,
                checkpoints=self.checkpoints,
                connect=self.topics,
                codec=Codec(),
                clock=self.clock,
                shipped=self.shipped,
            ),
        )

    @contextmanager
    def topics(self) -> Iterator[Topics]:
        reader, writer = self.snapshots.reader(), self.snapshots.writer()
        yield Topics(catalog=SnapshotCatalog(reader, writer), wal=self.wal.writer())

    def fold(self, count: int) -> Offset:
        return fold_batch(self.stores[FULL], count)

    def names(self) -> list[str]:
        return [
            one.name for one in SnapshotCatalog(self.snapshots.reader()).manifests()
        ]

    def kept(self) -> list[tuple[Offset, str]]:
        found = self.checkpoints[FULL].manifests()
        return [(one.offset, one.name) for one in found]


def _identity(partition: Partition) -> StoreIdentity:
    return StoreIdentity(cluster_id="cluster", topic_id="topic", partition=partition)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    for store in place.stores.values():
        store.close()


async def test_a_partition_without_a_record_has_no_files(place: Place) -> None:
    last = place.fold(20)
    made = await place.desk.create({"name": "v1"})
    (manifest,) = SnapshotCatalog(place.snapshots.reader()).manifests()
    assert made["lsns"] == [f"0@{last}"]
    assert [one.offset for one in manifest.partitions] == [last, -1]
    assert manifest.partitions[EMPTY].files == ()
    with place.checkpoints[FULL].hold(last) as (_, folder):
        place.shipped.ship(manifest, lambda _: folder)
    assert place.shipped.list().snapshots == [manifest]


async def test_each_namespace_is_told_and_only_those_that_are_asked_for(
    place: Place,
) -> None:
    place.fold(20)
    everyone = place.stores[FULL].namespaces()
    made = await place.desk.create({"name": "v1"})
    assert made["namespaces"] == [state.namespace for state in everyone]
    one = everyone[0]
    again = await place.desk.create({"name": "v2", "namespaces": [one.namespace]})
    assert again["namespaces"] == [one.namespace]
    events = _taken(place)
    assert len(events) == len(everyone) + 1
    assert events[-1].version == one.version
    assert events[-1].digest == one.digest.to_bytes(32, "big")


async def test_without_a_name_it_is_called_after_its_moment(place: Place) -> None:
    place.fold(5)
    made = await place.desk.create({})
    assert made["snapshot"] == "20231114T221320.000000Z"
    assert made["expires_at_ns"] == 0


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        pytest.param({"name": "a/b"}, "name", id="a-name-with-a-slash"),
        pytest.param({"retention_days": -1}, "retention_days", id="days-below-0"),
        pytest.param({"retention_days": "x"}, "retention_days", id="no-days"),
        pytest.param({"retention_days": True}, "retention_days", id="a-truth"),
        pytest.param({"namespaces": "alpha"}, "namespaces", id="not-a-list"),
    ],
)
async def test_a_wrong_wish_is_named(
    place: Place, fields: dict[str, Any], field: str
) -> None:
    place.fold(5)
    with pytest.raises(InvalidRequest) as refused:
        await place.desk.create(fields)
    assert refused.value.field == field
    assert place.kept() == []


async def test_a_snapshot_that_nobody_could_be_told_of_is_not_there(
    place: Place,
) -> None:
    place.fold(5)
    place.fold_thread.then = place.snapshots.go_away
    with pytest.raises(LogUnavailable):
        await place.desk.create({"name": "v1"})
    assert place.kept() == []


async def test_two_snapshots_of_one_moment_keep_it_as_long_as_either(
    place: Place,
) -> None:
    place.fold(5)
    await place.desk.create({"name": "for-ever"})
    await place.desk.create({"name": "a-day", "retention_days": 1})
    place.fold(5)
    await place.desk.create({"name": "later"})
    place.clock.advance(30 * DAY_NS)
    pruned = await place.desk.prune({})
    assert pruned["snapshots"] == ["a-day"]
    assert pruned["checkpoints"] == 0
    assert len(place.kept()) == 2
    assert sorted(place.names()) == ["for-ever", "later"]
    pruned = await place.desk.prune({"name": "for-ever"})
    assert (pruned["snapshots"], pruned["checkpoints"]) == (["for-ever"], 1)
    assert [name for _, name in place.kept()] == ["later"]


async def test_a_pruned_snapshot_goes_where_it_was_shipped_too(place: Place) -> None:
    last = place.fold(20)
    await place.desk.create({"name": "v1", "retention_days": 1})
    (manifest,) = SnapshotCatalog(place.snapshots.reader()).manifests()
    with place.checkpoints[FULL].hold(last) as (_, folder):
        place.shipped.ship(manifest, lambda _: folder)
    assert (await place.desk.prune({}))["snapshots"] == []
    place.clock.advance(10**4 * DAY_NS)
    pruned = await place.desk.prune({})
    assert pruned["snapshots"] == ["v1"]
    assert pruned["objects"] == len(manifest.partitions[FULL].files)
    assert place.shipped.list().snapshots == []


async def test_the_status_tells_how_far_each_partition_is(place: Place) -> None:
    status = await place.desk.handlers()["status"]({})
    assert status["ready"]
    assert status["partitions"]["0"] == {
        "applied": 4,
        "end": 7,
        "lag": 2,
        "caught_up": True,
    }


def _taken(place: Place) -> list[SnapshotTaken]:
    codec, reader, found = Codec(), place.wal.reader(), []
    for partition in (FULL, EMPTY):
        for batch in reader.read(partition, *reader.bounds(partition)):
            for record in batch:
                body = codec.decode(record.value or b"").body
                assert isinstance(body, SnapshotTaken)
                found.append(body)
    return sorted(found, key=lambda body: body.name)
