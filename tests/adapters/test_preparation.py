"""What a host's stores are made from, on real stores and a folder of snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from cachemind.adapters.checkpoints import RocksCheckpoints
from cachemind.adapters.group_memory import GroupMemory
from cachemind.adapters.kafka_topics import LogIdentity
from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rocks_store import RocksStore
from cachemind.adapters.rocks_view import RocksView
from cachemind.adapters.snapshot_store import SnapshotStore
from cachemind.adapters.store_rows import FORMAT
from cachemind.adapters.store_swap import is_empty
from cachemind.core.checkpoint import CheckpointManifest
from cachemind.core.snapshots import NO_EXPIRY, SnapshotManifest
from cachemind.errors import LogRejected, StoreLocked
from cachemind.ports import LogRecord
from cachemind.types import Offset, Partition
from cachemind_services.bootstrap.checkpoints import local_checkpoints
from cachemind_services.bootstrap.log import store_path
from cachemind_services.bootstrap.preparation import (
    forget_replaced,
    prepare_stores,
    store_lock,
)
from cachemind_services.settings import Settings
from tests.adapters.rocks_writing import IDENTITY, fold_batch
from tests.endless_log import NAMESPACES

ZERO = Partition(0)
MEMORY = RocksMemory(cache_bytes=8 << 20, write_buffer_bytes=8 << 20)
NOW_NS = 1_700_000_000 * 10**9
END = Offset(10_000)


class Log:
    """A `LogReader` that only knows how far it reaches."""

    def __init__(self, first: int = 0) -> None:
        self.first = Offset(first)

    def bounds(self, partition: Partition) -> tuple[Offset, Offset]:
        assert partition == ZERO
        return self.first, END

    def read(
        self, partition: Partition, start: Offset, end: Offset
    ) -> Iterable[Sequence[LogRecord]]:
        raise AssertionError("nobody reads the log here")

    def close(self) -> None: ...


class Group:
    """A `GroupOffsets` that an operator has set."""

    def __init__(self, at: int | None, error: Exception | None = None) -> None:
        self._at = None if at is None else Offset(at)
        self._error = error

    def committed(
        self, partitions: Sequence[Partition]
    ) -> Mapping[Partition, Offset | None]:
        if self._error is not None:
            raise self._error
        return dict.fromkeys(partitions, self._at)

    def commit(self, offsets: Mapping[Partition, Offset]) -> None:
        raise AssertionError("the group is only looked at")

    def close(self) -> None: ...


class Host:
    """One partition's store, checkpoints and shipped snapshots."""

    def __init__(self, folder: Path) -> None:
        self.shipped = folder / "shipped"
        self.settings = Settings(
            data_dir=folder / "host",
            partitions=1,
            snapshot_url=str(self.shipped),
        )
        self.log = LogIdentity(
            cluster_id=IDENTITY.cluster_id,
            topic_ids={"cachemind.wal": IDENTITY.topic_id},
        )
        self.path = store_path(self.settings, 0)
        self.memory = GroupMemory(self.path.parent, "group", IDENTITY.topic_id)

    def opened(self) -> RocksStore:
        return RocksStore(self.path, IDENTITY, MEMORY)

    def checkpoints(self) -> RocksCheckpoints:
        return local_checkpoints(self.settings, self.log, ZERO, MEMORY)

    def fold(self, *counts: int) -> list[CheckpointManifest]:
        """Fold so many more events, a checkpoint after each of `counts`."""
        store, made = self.opened(), []
        for count in counts:
            fold_batch(store, count)
            made.append(self.checkpoints().create(store, NOW_NS))
        store.close()
        return made

    def ship(self, one: CheckpointManifest) -> SnapshotManifest:
        manifest = SnapshotManifest(
            snapshot_id=f"{one.offset:032x}",
            name=f"at-{one.offset}",
            created_at_ns=one.created_at_ns + one.offset,
            expires_at_ns=NO_EXPIRY,
            cluster_id=IDENTITY.cluster_id,
            topic_id=IDENTITY.topic_id,
            store_format=FORMAT,
            partitions=(one.held,),
        )
        with self.checkpoints().hold(one.offset) as (_, folder):
            SnapshotStore(str(self.shipped)).ship(manifest, lambda _: folder)
        return manifest

    def lose(self, what: str) -> None:
        """Move the store, or the checkpoints too, out of the way."""
        self.path.rename(self.path.with_name("lost"))
        if what == "everything":
            folder = self.settings.data_dir / "checkpoints"
            folder.rename(folder.with_name("lost-checkpoints"))

    def damage(self, offset: Offset) -> None:
        """Change a byte of a checkpoint of this host."""
        folder = self.settings.data_dir / "checkpoints" / "0" / str(offset)
        path = next(folder.glob("*.log"))
        path.write_bytes(path.read_bytes() + b"?")

    def prepare(self, *, first: int = 0, group: Group | None = None) -> None:
        prepare_stores(
            self.settings, self.log, Log(first), group or Group(None), self.memory
        )

    def applied(self) -> Offset:
        """How far the store is now; -1 for none."""
        if is_empty(self.path):
            return Offset(-1)
        store = self.opened()
        found = store.applied()
        store.close()
        return found


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_lost_store_is_made_from_the_newest_checkpoint_here(host: Host) -> None:
    old, new = host.fold(20, 20)
    host.ship(old)
    host.lose("store")
    host.prepare()
    assert host.applied() == new.offset


def test_an_empty_host_is_made_from_the_newest_shipped_snapshot(host: Host) -> None:
    old, new = host.fold(20, 20)
    host.ship(new)
    host.ship(old)
    host.lose("everything")
    host.prepare()
    assert host.applied() == new.offset


@pytest.mark.parametrize("lost", ["store", "everything"])
def test_readers_see_it_before_the_materializer_runs(host: Host, lost: str) -> None:
    (one,) = host.fold(20)
    host.ship(one)
    host.lose(lost)
    host.prepare()
    with closing(RocksView(host.path, MEMORY)) as view:
        assert view.catch_up() == one.offset
        assert {view.fenced_at(name) for name in NAMESPACES} == {-1}


def test_of_both_the_newer_one_is_taken(host: Host) -> None:
    old, new = host.fold(20, 20)
    host.ship(new)
    host.lose("store")
    host.checkpoints().remove(new.offset)
    host.prepare()
    assert host.applied() == new.offset
    assert host.applied() > old.offset


def test_a_damaged_one_is_named_and_the_next_older_taken(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = host.fold(20, 20)
    host.damage(new.offset)
    host.lose("store")
    host.prepare()
    assert host.applied() == old.offset
    assert f"checkpoint 0@{new.offset} is not used" in caplog.text
    assert "is damaged" in caplog.text


def test_a_snapshot_of_another_format_is_not_taken(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    (one,) = host.fold(20)
    manifest = replace(host.ship(one), store_format=FORMAT + 1, snapshot_id="f" * 32)
    SnapshotStore(str(host.shipped)).remove(host.ship(one))
    with host.checkpoints().hold(one.offset) as (_, folder):
        SnapshotStore(str(host.shipped)).ship(manifest, lambda _: folder)
    host.lose("everything")
    host.prepare()
    assert host.applied() == -1
    assert f"its stores have format {FORMAT + 1}" in caplog.text


def test_where_snapshots_are_is_away_the_log_still_does(
    host: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host.fold(20)
    host.lose("everything")
    host.settings = replace(host.settings, snapshot_url="s3://bucket/x")
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    host.prepare()
    assert host.applied() == -1
    assert "snapshots at s3://bucket/x" in caplog.text


def test_what_the_log_does_not_follow_on_from_is_not_taken(host: Host) -> None:
    old, _ = host.fold(20, 20)
    host.lose("store")
    host.prepare(first=5_000)
    assert host.applied() == -1
    host.prepare(first=old.offset + 1)
    assert host.applied() > old.offset


def test_a_store_that_the_log_left_behind_is_made_anew(host: Host) -> None:
    old, new = host.fold(20, 20)
    host.ship(new)
    host.checkpoints().remove(new.offset)
    host.lose("store")
    url, host.settings = host.settings, replace(host.settings, snapshot_url="")
    host.prepare()
    assert host.applied() == old.offset
    host.settings = url
    host.prepare(first=old.offset + 1)
    assert host.applied() == old.offset
    host.prepare(first=old.offset + 2)
    assert host.applied() == new.offset


def test_a_store_that_is_there_is_left_alone(host: Host) -> None:
    (one,) = host.fold(20)
    store = host.opened()
    last = fold_batch(store, 5)
    store.close()
    host.prepare()
    assert host.applied() == last > one.offset


# ---- a group that was moved back ----------------------------------------------------


def test_a_group_moved_back_takes_the_store_to_before_that(host: Host) -> None:
    low, high = host.fold(20, 20)
    host.memory.save({ZERO: Offset(high.offset + 1)})
    host.prepare(group=Group(high.offset))
    assert host.applied() == low.offset
    assert host.path.with_name("0.before").exists()
    assert host.memory.load() == {ZERO: high.offset}
    forget_replaced(host.settings)
    assert not host.path.with_name("0.before").exists()


def test_until_it_is_caught_up_nothing_older_is_served(host: Host) -> None:
    _, high = host.fold(20, 20)
    host.memory.save({ZERO: Offset(high.offset + 1)})
    host.prepare(group=Group(high.offset))
    store = host.opened()
    view = RocksView(host.path, MEMORY)
    assert view.catch_up() < high.offset
    assert {view.fenced_at(name) for name in NAMESPACES} == {high.offset}
    view.close()
    store.close()


def test_a_store_that_was_not_replaced_is_not_fenced(host: Host) -> None:
    host.fold(20)
    host.prepare()
    store = host.opened()
    view = RocksView(host.path, MEMORY)
    view.catch_up()
    assert {view.fenced_at(name) for name in NAMESPACES} == {-1}
    view.close()
    store.close()


def test_it_is_followed_once(host: Host) -> None:
    _, high = host.fold(20, 20)
    host.memory.save({ZERO: Offset(high.offset + 1)})
    host.prepare(group=Group(high.offset))
    store = host.opened()
    last = fold_batch(store, 3)
    store.close()
    host.prepare(group=Group(high.offset))
    assert host.applied() == last


def test_below_all_checkpoints_it_begins_at_the_logs_start(host: Host) -> None:
    (one,) = host.fold(20)
    host.memory.save({ZERO: Offset(one.offset + 1)})
    host.prepare(group=Group(3))
    assert host.applied() == -1


def test_where_nothing_leads_there_the_store_counts(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    (one,) = host.fold(20)
    host.memory.save({ZERO: Offset(one.offset + 1)})
    host.prepare(first=2, group=Group(3))
    assert host.applied() == one.offset
    assert "the store is left as it is" in caplog.text


def test_a_group_that_may_not_be_looked_at_changes_nothing(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    (one,) = host.fold(20)
    host.memory.save({ZERO: Offset(one.offset + 1)})
    host.prepare(group=Group(None, LogRejected("not authorised")))
    assert host.applied() == one.offset
    assert "is not known: not authorised" in caplog.text


def test_one_process_at_a_time_owns_the_stores(host: Host) -> None:
    with (
        store_lock(host.settings),
        pytest.raises(StoreLocked),
        store_lock(host.settings),
    ):
        raise AssertionError("both own them")
    with store_lock(host.settings):
        pass
