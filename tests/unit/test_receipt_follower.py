from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.memory_log import MemoryLog
from cachemind.adapters.memory_receipts import MemoryReceiptIndex
from cachemind.agents.receipt_follower import ReceiptFollower
from cachemind.core.partitioner import partition_of
from cachemind.errors import LogUnavailable, OffsetOutOfRange
from cachemind.ports import LogRecord
from cachemind.types import Namespace, Offset, Partition
from tests.receipt_log import ReceiptLog, trace
from tests.upstreams import wait_until

PARTITIONS = 1
SHOP = Namespace("shop")


@contextmanager
def following(
    index: MemoryReceiptIndex,
    receipts: MemoryLog,
    cuts: MemoryLog,
    seal: Callable[[Sequence[LogRecord]], None],
) -> Iterator[None]:
    stop = threading.Event()
    follower = ReceiptFollower(index, receipts.reader(), cuts.reader(), stop, seal)
    thread = threading.Thread(target=follower.run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)
        assert not thread.is_alive()


def append(topic: MemoryLog, records: Sequence[LogRecord]) -> None:
    for record in records:
        assert record.value is not None
        topic.writer().append(b"shop", record.value, ()).result(5)


def test_what_comes_on_both_topics_is_found_sealed_first() -> None:
    assert partition_of(b"shop", PARTITIONS) == 0
    log = ReceiptLog(PARTITIONS)
    receipts, cuts = (MemoryLog(PARTITIONS, SystemClock()) for _ in range(2))
    index = MemoryReceiptIndex(PARTITIONS)
    sealed: list[Offset] = []

    def seal(batch: Sequence[LogRecord]) -> None:
        done = index.receipt_offsets()[Partition(0)]
        assert all(record.lsn.offset >= done for record in batch)
        sealed.extend(record.lsn.offset for record in batch)

    with following(index, receipts, cuts, seal):
        for number in range(5):
            log.sign(0, [trace(number)])
        log.cut()
        append(receipts, log.records[0])
        append(cuts, log.cuts)

        def proven() -> bool:
            found = index.of_trace(SHOP, trace(4), -1, 1)
            return bool(found) and index.proof(found[0]) is not None

        wait_until(proven)
    assert sealed == [0, 1, 2, 3, 4]


def test_a_topic_that_lost_its_beginning_is_followed_from_where_it_begins() -> None:
    log = ReceiptLog(PARTITIONS)
    receipts, cuts = (MemoryLog(PARTITIONS, SystemClock()) for _ in range(2))
    for number in range(4):
        log.sign(0, [trace(number)])
        log.cut()
    append(receipts, log.records[0])
    receipts.delete_before(Partition(0), Offset(2))
    index = MemoryReceiptIndex(PARTITIONS)
    with following(index, receipts, cuts, lambda _: None):
        append(cuts, log.cuts)
        wait_until(lambda: index.of_trace(SHOP, trace(3), -1, 1))
    assert index.of_trace(SHOP, trace(1), -1, 1) == []


class _Broken:
    """A topic that ends before what was read of it."""

    def bounds(self, partition: Partition) -> tuple[Offset, Offset]:
        return Offset(0), Offset(0)

    def read(
        self, partition: Partition, start: Offset, end: Offset
    ) -> Iterator[Sequence[LogRecord]]:
        raise LogUnavailable("not asked for")

    def follow(
        self, starts: Mapping[Partition, Offset], should_stop: Callable[[], bool]
    ) -> Iterator[Sequence[LogRecord]]:
        raise OffsetOutOfRange("audit[0]", 7, 0, 0)

    def close(self) -> None:
        pass


def test_what_ends_one_ends_both_and_is_raised() -> None:
    index = MemoryReceiptIndex(PARTITIONS)
    cuts = MemoryLog(PARTITIONS, SystemClock()).reader()
    follower = ReceiptFollower(index, _Broken(), cuts, threading.Event())
    with pytest.raises(OffsetOutOfRange):
        follower.run()
