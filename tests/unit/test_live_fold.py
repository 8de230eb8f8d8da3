from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from cachemind.agents.live import BATCH_RECORDS, LiveFold
from cachemind.agents.own_thread import OwnThread
from cachemind.agents.replay import never
from cachemind.errors import FoldStopped
from cachemind.ports import LogRecord
from cachemind.types import Lsn, Offset, Partition
from tests.unit.folding_bench import CODEC, ZERO, Bench
from tests.wal_events import ALPHA, envelope, rolled_back, stored


class Live:
    """A live fold over a bench, with the acks it has given."""

    def __init__(self, bench: Bench, live: LiveFold) -> None:
        self._bench = bench
        self._live = live
        self.acked: list[int] = []
        self.applied_at_ack: list[int] = []

    async def deliver(self, record: LogRecord) -> None:
        def ack() -> None:
            self.acked.append(record.lsn.offset)
            self.applied_at_ack.append(self._bench.store.applied())

        await self._live.accept(record, ack)

    async def until_acked(self, offset: int) -> None:
        while not self.acked or self.acked[-1] < offset:
            await asyncio.sleep(0)


@asynccontextmanager
async def live_fold(bench: Bench) -> AsyncIterator[tuple[Live, asyncio.Task[None]]]:
    thread = OwnThread("fold")
    fold = LiveFold({ZERO: bench.folder()}, bench.reader, thread, never)
    task = asyncio.create_task(fold.run())
    try:
        yield Live(bench, fold), task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, FoldStopped):
            await task
        assert await thread.finish(lambda: None, 5)
        thread.close()


async def test_an_event_is_acknowledged_after_its_commit() -> None:
    bench = Bench()
    bench.append(*(stored(n) for n in range(5)))
    async with live_fold(bench) as (live, _):
        for record in bench.records():
            await live.deliver(record)
        await live.until_acked(4)
    assert live.acked == [0, 1, 2, 3, 4]
    assert all(a >= o for a, o in zip(live.applied_at_ack, live.acked, strict=True))


async def test_what_waits_is_folded_in_one_commit() -> None:
    bench = Bench()
    bench.append(*(stored(n) for n in range(BATCH_RECORDS + 10)))
    async with live_fold(bench) as (live, _):
        for record in bench.records():
            await live.deliver(record)
        await live.until_acked(BATCH_RECORDS + 9)
    assert bench.store.namespace(ALPHA).version == BATCH_RECORDS + 10
    assert len(bench.metrics.applied) == 2


async def test_an_outage_is_waited_out() -> None:
    bench = Bench()
    bench.append(stored(1), stored(2), stored(3))
    last = bench.records()[-1]
    bench.wal.go_away()
    async with live_fold(bench) as (live, task):
        await live.deliver(last)  # needs the log for what came before it
        await asyncio.sleep(0.05)
        assert not task.done()
        bench.wal.come_back()
        await live.until_acked(2)
    assert bench.store.namespace(ALPHA).version == 3


async def test_a_stop_halts_its_partition_and_the_others_go_on() -> None:
    bench = Bench(partitions=2)
    home = bench.append(stored(1)).partition
    other = Partition(1 - home)
    stop = LogRecord(
        lsn=Lsn(home, Offset(1)),
        key=b"alpha",
        value=CODEC.encode(envelope(9, rolled_back(0))),
        headers=(),
        timestamp_ms=-1,
    )
    sound = LogRecord(
        lsn=Lsn(other, Offset(0)), key=None, value=b"", headers=(), timestamp_ms=-1
    )
    folders = {home: bench.folder(home), other: Bench(partitions=2).folder(other)}
    thread = OwnThread("fold")
    fold = LiveFold(folders, bench.reader, thread, never)
    for record in (*bench.records(home), stop, sound):
        await fold.accept(record, lambda: None)
    task = asyncio.create_task(fold.run())
    while folders[other].applied < 0 or folders[home].halted is None:
        await asyncio.sleep(0)
    assert str(stop.lsn) in str(folders[home].halted)
    assert folders[home].applied == 0
    assert not task.done()
    later = replace(sound, lsn=Lsn(other, Offset(1)))
    await fold.accept(replace(stop, lsn=Lsn(home, Offset(2))), lambda: None)
    await fold.accept(later, lambda: None)
    while folders[other].applied < 1:
        await asyncio.sleep(0)
    assert folders[home].applied == 0
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    thread.close()


async def test_a_partition_without_a_store_stops_the_fold() -> None:
    bench = Bench()
    bench.append(stored(1))
    thread = OwnThread("fold")
    fold = LiveFold({}, bench.reader, thread, never)
    await fold.accept(bench.records()[0], lambda: None)
    with pytest.raises(FoldStopped, match="no store"):
        await fold.run()
    thread.close()
