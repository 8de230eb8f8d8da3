"""Readers of a store while a copy takes its place, and what a start finds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from cachemind.adapters.doorbell import Doorbell
from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rocks_store import RocksStore
from cachemind.adapters.rocks_view import RocksView
from cachemind.adapters.scratch_entries import scratch_entries, sweep_scratch
from cachemind.adapters.store_swap import settle
from cachemind.core.replayed import InMemory
from cachemind.types import Offset
from tests.adapters.rocks_writing import IDENTITY
from tests.contracts.shadow_contract import go_on, made, placed, words_of
from tests.contracts.store_contract import OTHER, put
from tests.fold_cases import NS, envelope, key, stored

MEMORY = RocksMemory(cache_bytes=32 << 20, write_buffer_bytes=16 << 20)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksStore]:
    store = RocksStore(tmp_path / "store", IDENTITY, MEMORY)
    yield store
    store.close()


def flip(store: RocksStore, number: int) -> None:
    """Replace the store by a copy in which `p` has another answer."""
    copy = store.shadow(go_on)
    copy.put(NS, {key("p"): made("p")}, {})
    copy.commit(Offset(number), {NS: [placed(store, "p")]})


def test_another_namespace_is_served_while_copies_take_the_stores_place(
    store: RocksStore, tmp_path: Path
) -> None:
    put(store, 0, envelope(stored("p"), "e1"))
    put(store, 1, envelope(stored("x"), "e2", namespace=OTHER))
    faults: list[str] = []
    done = Event()

    def look() -> None:
        view = RocksView(tmp_path / "store", MEMORY, identity=IDENTITY)
        seen = Offset(-1)
        while not done.is_set():
            applied = view.catch_up()
            if applied < seen:
                faults.append(f"{applied} after {seen}")
            seen = applied
            if view.raw_entry(OTHER, key("x")) is None:
                faults.append(f"missing at {applied}")
        view.close()

    readers = [Thread(target=look) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(2, 30):
        flip(store, number)
    done.set()
    for reader in readers:
        reader.join()
    assert faults == []
    assert words_of(store, OTHER) == ["x"]


def test_a_reader_in_the_midst_of_a_catch_up_holds_the_store_in_its_place(
    store: RocksStore, tmp_path: Path
) -> None:
    put(store, 0, envelope(stored("p"), "e1"))
    bell = Doorbell(tmp_path / "store", owner=False)
    flipping = Thread(target=flip, args=(store, 1))
    with bell.in_place() as in_place:
        assert in_place
        flipping.start()
        flipping.join(0.3)
        assert flipping.is_alive()
        assert not bell.moved()
    flipping.join()
    assert bell.moved()
    bell.close()


def test_a_start_forgets_a_copy_that_was_not_decided(
    store: RocksStore, tmp_path: Path
) -> None:
    put(store, 0, envelope(stored("p"), "e1"))
    store.checkpoint(tmp_path / "store.part")
    store.close()
    settle(tmp_path / "store")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_what_is_put_aside_covers_what_was_and_is_gone_in_the_end(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "scratch"
    with scratch_entries(folder) as aside:
        assert aside.get(key("a")) is None
        assert list(aside.entries()) == []
        assert not folder.exists()
        for each in (aside, InMemory()):
            each.put({key("a"): made("a"), key("b"): made("b")})
            each.put({key("b"): None, key("c"): made("c")})
            assert each.get(key("a")) == (made("a"),)
            assert each.get(key("b")) == (None,)
            assert each.get(key("d")) is None
            kept = sorted([key("a"), key("c")])
            assert [entry.exact_key for entry in each.entries()] == kept
    assert list(folder.iterdir()) == []
    (folder / "entries-left").mkdir()
    sweep_scratch(folder)
    assert list(folder.iterdir()) == []
