from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Event, Thread

import pytest
from hypothesis import given

from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rocks_store import RocksStore
from cachemind.adapters.rocks_view import RocksView
from cachemind.adapters.store_rows import StoreIdentity
from cachemind.core.entry_bytes import serving
from cachemind.core.verification import digest_mismatch
from cachemind.errors import StoreLocked, StoreMismatch, StoreUnavailable
from cachemind.events import Envelope
from cachemind.ports import StoreInspector, StoreWriter
from cachemind.types import Offset, Partition
from tests.adapters.rocks_writing import IDENTITY, fold_batch
from tests.contracts.shadow_contract import ShadowContract
from tests.contracts.store_contract import (
    CUTS,
    FEW,
    StoreContract,
    put,
    require_fold,
    require_fold_in_any_batching,
    require_journal_to_tell_all,
)
from tests.endless_log import NAMESPACES, folded_up_to
from tests.fold_cases import NS, envelope, key, read, reads, stored
from tests.unit.fold_strategies import logs

REPOSITORY = Path(__file__).parents[2]
MEMORY = RocksMemory(cache_bytes=32 << 20, write_buffer_bytes=16 << 20)


class RocksSite:
    """Opens stores in fresh folders and closes all of them at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0
        self._paths: dict[int, Path] = {}
        self._stores: list[RocksStore] = []
        self._views: list[RocksView] = []

    def fresh(self) -> Path:
        self._made += 1
        return self._folder / str(self._made)

    def store(self, journal_changes: int = 1000) -> StoreWriter:
        return self.at(self.fresh(), journal_changes)

    def at(self, path: Path, journal_changes: int = 1000) -> RocksStore:
        store = RocksStore(path, IDENTITY, MEMORY, journal_changes=journal_changes)
        self._paths[id(store)] = path
        self._stores.append(store)
        return store

    def view(self, store: StoreWriter) -> StoreInspector:
        return self.view_at(self._paths[id(store)])

    def view_at(self, path: Path) -> RocksView:
        view = RocksView(path, MEMORY, identity=IDENTITY)
        self._views.append(view)
        return view

    def close(self) -> None:
        for view in self._views:
            view.close()
        for store in self._stores:
            store.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[RocksSite]:
    site = RocksSite(tmp_path)
    yield site
    site.close()


class TestRocksStore(StoreContract):
    """The port's promises."""


class TestRocksShadow(ShadowContract):
    """The port's promises."""


@FEW
@given(log=logs(), cuts=CUTS)
def test_a_store_holds_the_fold_of_its_log_however_it_was_batched(
    site: RocksSite, log: list[Envelope], cuts: list[int]
) -> None:
    require_fold_in_any_batching(site, log, cuts)


@FEW
@given(log=logs(), cuts=CUTS)
def test_who_follows_the_journal_knows_which_entries_there_are(
    site: RocksSite, log: list[Envelope], cuts: list[int]
) -> None:
    require_journal_to_tell_all(site, log, cuts)


# ---- whose store it is --------------------------------------------------------------


def test_a_reopened_store_goes_on_where_it_was(site: RocksSite) -> None:
    path = site.fresh()
    store = site.at(path)
    last = fold_batch(store, 60)
    store.close()
    again = site.at(path)
    assert again.applied() == last
    fold_batch(again, 60)
    view = site.view_at(path)
    view.catch_up()
    require_fold(view, folded_up_to(119), NAMESPACES)


def test_a_journal_survives_a_restart_and_stays_bounded(site: RocksSite) -> None:
    path = site.fresh()
    store = site.at(path, journal_changes=2)
    put(store, 0, envelope(stored("p"), "e1"))
    put(store, 1, envelope(stored("q"), "e2"))
    store.close()
    again = site.at(path, journal_changes=2)
    put(again, 2, envelope(stored("r"), "e3"))
    view = site.view_at(path)
    view.catch_up()
    kept = view.changes_since(Offset(0))
    assert kept is not None
    assert [line.exact_key for line in kept] == [key("q"), key("r")]
    assert view.changes_since(Offset(-1)) is None


def test_a_second_owner_in_this_process_is_refused(site: RocksSite) -> None:
    path = site.fresh()
    site.at(path)
    with pytest.raises(StoreLocked):
        RocksStore(path, IDENTITY, MEMORY)


@pytest.mark.parametrize(
    "other",
    [
        replace(IDENTITY, cluster_id="x"),
        replace(IDENTITY, topic_id="x"),
        replace(IDENTITY, partition=Partition(1)),
    ],
)
def test_a_store_of_another_log_is_refused_and_left_alone(
    site: RocksSite, other: StoreIdentity
) -> None:
    path = site.fresh()
    store = site.at(path)
    put(store, 0, envelope(stored("p")))
    store.close()
    with pytest.raises(StoreMismatch, match="folded from cluster cluster topic topic"):
        RocksStore(path, other, MEMORY)
    with pytest.raises(StoreMismatch):
        RocksView(path, MEMORY, identity=other).catch_up()
    assert site.at(path).applied() == 0


def test_a_folder_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnavailable):
        RocksStore(tmp_path / "file" / "store", IDENTITY, MEMORY)


def test_a_damaged_store_is_unavailable_to_owner_and_reader(site: RocksSite) -> None:
    path = site.fresh()
    store = site.at(path)
    put(store, 0, envelope(stored("p")))
    store.close()
    (path / "CURRENT").write_bytes(b"MANIFEST-999999\n")
    with pytest.raises(StoreUnavailable):
        RocksStore(path, IDENTITY, MEMORY)
    with pytest.raises(StoreUnavailable):
        site.view_at(path).catch_up()


# ---- readers ------------------------------------------------------------------------


def test_a_reader_waits_for_a_store_without_making_one(site: RocksSite) -> None:
    path = site.fresh()
    view = site.view_at(path)
    with pytest.raises(StoreUnavailable, match="no store here yet"):
        view.catch_up()
    assert not path.exists()
    assert view.changed()
    assert view.raw_entry(NS, key("p")) is None
    put(site.at(path), 0, envelope(stored("p")))
    assert view.catch_up() == 0


def test_a_reader_follows_an_owner_that_restarts(site: RocksSite) -> None:
    path = site.fresh()
    store = site.at(path)
    view = site.view_at(path)
    fold_batch(store, 30)
    view.catch_up()
    store.close()
    again = site.at(path)
    fold_batch(again, 30)
    assert view.changed()
    assert view.catch_up() == 59
    require_fold(view, folded_up_to(59), NAMESPACES)


def test_a_reader_turns_to_the_store_that_replaced_its_own(site: RocksSite) -> None:
    path = site.fresh()
    store = site.at(path)
    put(store, 0, envelope(stored("p"), "e1"))
    view = site.view_at(path)
    view.catch_up()
    store.close()
    shutil.rmtree(path)
    with pytest.raises(StoreUnavailable):
        view.catch_up()
    assert view.raw_entry(NS, key("p")) is not None
    put(site.at(path), 0, envelope(stored("q"), "e2"))
    view.catch_up()
    assert view.raw_entry(NS, key("p")) is None
    assert view.raw_entry(NS, key("q")) is not None


def test_a_reader_keeps_reading_across_flush_and_compaction(site: RocksSite) -> None:
    path = site.fresh()
    store = site.at(path)
    view = site.view_at(path)
    for _ in range(3):
        fold_batch(store, 40)
        view.catch_up()
        scan = iter(view.entries(NAMESPACES[0]))
        first = next(scan)
        store._database.raw.flush()
        store._database.raw.compact_range(None, None)
        fold_batch(store, 40)
        view.catch_up()
        assert all(entry.exact_key > first.exact_key for entry in scan)
    require_fold(view, folded_up_to(239), NAMESPACES)


def test_readers_in_threads_never_see_half_a_commit(site: RocksSite) -> None:
    path = site.fresh()
    store = site.at(path)
    put(store, 0, envelope(stored("p0"), "e0"))
    view = site.view_at(path)
    view.catch_up()
    done, faults = Event(), list[str]()

    def look() -> None:
        while not done.is_set():
            raw = view.raw_entry(NS, key("p0"))
            if raw is None or serving(raw).response != b"answer to p0":
                faults.append("the first entry is gone")

    readers = [Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    for offset in range(1, 200):
        put(store, offset, envelope(stored(f"p{offset}"), str(offset)))
        view.catch_up()
        # One entry a commit: all kinds of rows agree or the commit is torn.
        assert view.namespace(NS).version == view.applied() + 1 == offset + 1
        assert view.raw_entry(NS, key(f"p{offset}")) is not None
    done.set()
    for reader in readers:
        reader.join()
    assert faults == []


def test_hit_histories_can_be_read(site: RocksSite) -> None:
    path = site.fresh()
    store = site.at(path)
    put(store, 0, envelope(stored("p")), envelope(reads(read("p", 7))))
    view = site.view_at(path)
    view.catch_up()
    hits = view.hits(NS, key("p"))
    assert hits is not None
    assert hits.last_ns == (7,)


def test_a_closed_reader_shows_nothing_and_leaves_no_files(
    site: RocksSite, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    path = site.fresh()
    put(site.at(path), 0, envelope(stored("p")))
    view = RocksView(path, MEMORY, scratch=own)
    view.catch_up()
    assert list(own.iterdir())
    view.close()
    assert view.raw_entry(NS, key("p")) is None
    assert not list(own.iterdir())


# ---- copies -------------------------------------------------------------------------


def test_a_checkpoint_is_the_store_as_it_was(site: RocksSite, tmp_path: Path) -> None:
    store = site.at(site.fresh())
    at = fold_batch(store, 50)
    copy = tmp_path / "copies" / "one"
    assert store.checkpoint(copy) == at
    fold_batch(store, 50)
    view = site.view_at(copy)
    assert view.catch_up() == at
    require_fold(view, folded_up_to(at), NAMESPACES)
    assert site.at(copy).applied() == at


def test_a_checkpoint_never_overwrites(site: RocksSite, tmp_path: Path) -> None:
    store = site.at(site.fresh())
    (tmp_path / "there").mkdir()
    with pytest.raises(StoreUnavailable):
        store.checkpoint(tmp_path / "there")


def test_a_checkpoint_does_not_keep_the_lock(site: RocksSite, tmp_path: Path) -> None:
    path = site.fresh()
    store = site.at(path)
    store.checkpoint(tmp_path / "copy")
    store.close()
    assert site.at(path).applied() == -1


# ---- death --------------------------------------------------------------------------


def writing(
    path: Path, seed: int, memtable_bytes: int = 1 << 24
) -> subprocess.Popen[str]:
    """Start a process that folds the endless log into `path`."""
    command = [sys.executable, "-m", "tests.adapters.rocks_writing", str(path)]
    roots = [str(REPOSITORY / "streams"), str(REPOSITORY)]
    return subprocess.Popen(
        [*command, str(seed), str(memtable_bytes)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(roots)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_reader_stays_whole_while_memtables_become_files(site: RocksSite) -> None:
    path = site.fresh()
    view = site.view_at(path)
    chance = Random(5)
    with writing(path, 0, memtable_bytes=1 << 16) as owner:
        assert owner.stdout is not None
        for _ in range(200):
            for _ in range(chance.choice([1, 1, 2, 30])):
                told = int(owner.stdout.readline())
            assert view.catch_up() >= told
            for name in NAMESPACES:
                mismatch = digest_mismatch(view.namespace(name), view.entries(name))
                assert mismatch is None
        owner.kill()


def test_whenever_the_owner_is_killed_the_state_is_the_fold_up_to_applied(
    site: RocksSite,
) -> None:
    path = site.fresh()
    view = site.view_at(path)
    chance = Random(3)
    told = -1
    for seed in range(5):
        with writing(path, seed) as owner:
            assert owner.stdout is not None
            for _ in range(chance.randint(1, 60)):
                told = int(owner.stdout.readline())
                assert view.catch_up() >= told
            with pytest.raises(StoreLocked):
                RocksStore(path, IDENTITY, MEMORY)
            owner.kill()
        store = RocksStore(path, IDENTITY, MEMORY)
        applied = store.applied()
        store.close()
        assert applied >= told
        assert view.catch_up() == applied
        require_fold(view, folded_up_to(applied), NAMESPACES)
