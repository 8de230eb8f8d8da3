from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cachemind.adapters.memory_receipts import MemoryReceiptIndex
from cachemind.adapters.receipt_rows import IndexIdentity
from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rocks_receipts import (
    RocksReceiptIndex,
    RocksReceiptView,
    forget_index,
)
from cachemind.errors import StoreLocked, StoreMismatch, StoreUnavailable
from tests.contracts.receipt_index_contract import (
    OURS,
    PARTITIONS,
    SHOP,
    Open,
    Opened,
    ReceiptIndexContract,
    feed,
    is_proven,
)
from tests.receipt_log import ReceiptLog, trace

LOG = IndexIdentity(cluster_id="c", audit_topic_id="a", cuts_topic_id="b")
OTHER = IndexIdentity(cluster_id="c", audit_topic_id="z", cuts_topic_id="b")


class TestMemory(ReceiptIndexContract):
    @pytest.fixture
    def open_index(self) -> Open:
        @contextmanager
        def opened(kept: int) -> Iterator[Opened]:
            index = MemoryReceiptIndex(PARTITIONS, kept)
            yield index, index.view()

        return opened


@pytest.fixture
def memory() -> RocksMemory:
    return RocksMemory(2**20, 2**20, 2**20)


def view_of(path: Path, memory: RocksMemory) -> RocksReceiptView:
    return RocksReceiptView(path, memory, PARTITIONS, path.parent)


class TestRocks(ReceiptIndexContract):
    @pytest.fixture
    def open_index(self, tmp_path: Path, memory: RocksMemory) -> Open:
        @contextmanager
        def opened(kept: int) -> Iterator[Opened]:
            path = tmp_path / "index"
            index = RocksReceiptIndex(path, LOG, memory, PARTITIONS, kept)
            view = view_of(path, memory)
            yield index, view
            view.close()
            index.close()

        return opened

    def test_an_index_goes_on_where_it_was_left(
        self, tmp_path: Path, memory: RocksMemory
    ) -> None:
        log = ReceiptLog(PARTITIONS)
        for number in range(30):
            log.sign(OURS, [trace(number)])
            if number % 7 == 6:
                log.cut()
            index = RocksReceiptIndex(tmp_path / "i", LOG, memory, PARTITIONS)
            feed(index, log)
            index.close()
        log.cut()
        index = RocksReceiptIndex(tmp_path / "i", LOG, memory, PARTITIONS)
        feed(index, log)
        for receipt in log.receipts[OURS]:
            found = index.of_source(receipt.source)
            assert found is not None
            proof = index.proof(found)
            assert proof is not None
            assert is_proven(log, found, proof)
        index.close()

    def test_a_reader_follows_and_finds_an_index_that_was_made_anew(
        self, tmp_path: Path, memory: RocksMemory
    ) -> None:
        path = tmp_path / "i"
        view = view_of(path, memory)
        assert view.changed()
        with pytest.raises(StoreUnavailable, match="no index"):
            view.catch_up()
        assert view.of_trace(SHOP, trace(1), -1, 5) == []
        log = ReceiptLog(PARTITIONS)
        log.sign(OURS, [trace(1)])
        index = RocksReceiptIndex(path, LOG, memory, PARTITIONS)
        view.catch_up()
        feed(index, log)
        assert view.changed()
        view.catch_up()
        assert len(view.of_trace(SHOP, trace(1), -1, 5)) == 1
        index.close()
        forget_index(path)
        forget_index(path)
        index = RocksReceiptIndex(path, OTHER, memory, PARTITIONS)
        view.catch_up()
        assert view.of_trace(SHOP, trace(1), -1, 5) == []
        view.close()
        index.close()

    def test_a_reader_without_room_for_its_own_files_says_so(
        self, tmp_path: Path, memory: RocksMemory
    ) -> None:
        index = RocksReceiptIndex(tmp_path / "i", LOG, memory, PARTITIONS)
        gone = tmp_path / "gone"
        view = RocksReceiptView(tmp_path / "i", memory, PARTITIONS, gone)
        with pytest.raises(StoreUnavailable, match="gone"):
            view.catch_up()
        gone.mkdir()
        view.catch_up()
        view.close()
        index.close()

    def test_an_index_of_another_log_is_refused_and_so_is_a_second_owner(
        self, tmp_path: Path, memory: RocksMemory
    ) -> None:
        path = tmp_path / "i"
        index = RocksReceiptIndex(path, LOG, memory, PARTITIONS)
        with pytest.raises(StoreLocked):
            RocksReceiptIndex(path, LOG, memory, PARTITIONS)
        index.close()
        with pytest.raises(StoreMismatch):
            RocksReceiptIndex(path, OTHER, memory, PARTITIONS)
