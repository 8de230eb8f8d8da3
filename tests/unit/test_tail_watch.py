from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from cachemind.agents import tail_watch
from cachemind.agents.own_thread import OwnThread
from cachemind.agents.replay import never
from cachemind.agents.tail_watch import TailWatch
from cachemind.agents.watchdog import Watchdog
from cachemind.errors import FoldStopped, NoProgress
from cachemind.types import Partition
from tests.unit.folding_bench import ZERO, Bench
from tests.wal_events import ALPHA, rolled_back, stored

HELD = frozenset({ZERO})
NOBODY: frozenset[Partition] = frozenset()


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def threads() -> Iterator[tuple[OwnThread, OwnThread]]:
    pair = (OwnThread("fold"), OwnThread("log-end"))
    yield pair
    for thread in pair:
        thread.close()


def watch(
    bench: Bench, threads: tuple[OwnThread, OwnThread], patience_s: float = 60
) -> TailWatch:
    return TailWatch(
        {ZERO: bench.folder()},
        bench.reader,
        bench.metrics,
        Watchdog(patience_s),
        *threads,
        never,
    )


async def test_nothing_is_ready_before_the_first_look(
    bench: Bench, threads: tuple[OwnThread, OwnThread]
) -> None:
    status = watch(bench, threads).status()
    assert not status.ready
    assert status.partitions[ZERO].lag is None


async def test_an_empty_log_is_caught_up(
    bench: Bench, threads: tuple[OwnThread, OwnThread]
) -> None:
    tail = watch(bench, threads)
    await tail.tick(HELD)
    assert tail.status().ready
    assert tail.status().partitions[ZERO].lag == 0


async def test_a_held_partition_that_lags_is_not_ready_and_says_by_how_much(
    bench: Bench, threads: tuple[OwnThread, OwnThread]
) -> None:
    bench.append(stored(1), stored(2))
    tail = watch(bench, threads)
    await tail.tick(HELD)
    assert not tail.status().ready
    assert tail.status().partitions[ZERO].lag == bench.metrics.lags[ZERO] == 2


async def test_a_partition_that_nobody_delivers_is_kept_up_in_bulk(
    bench: Bench, threads: tuple[OwnThread, OwnThread]
) -> None:
    bench.append(stored(1), stored(2))
    tail = watch(bench, threads)
    await tail.tick(NOBODY)
    assert tail.status().ready
    assert bench.store.namespace(ALPHA).version == 2


async def test_markers_at_the_end_are_no_lag(
    bench: Bench, threads: tuple[OwnThread, OwnThread]
) -> None:
    bench.append(stored(1))
    tail = watch(bench, threads, patience_s=0)
    await tail.tick(NOBODY)
    bench.wal.leave_gap(ZERO, 2)
    await tail.tick(HELD)
    await tail.tick(HELD)
    status = tail.status().partitions[ZERO]
    assert (status.lag, status.applied, status.position) == (0, 0, 3)


async def test_a_fold_that_stands_is_noticed(
    bench: Bench, threads: tuple[OwnThread, OwnThread]
) -> None:
    bench.append(stored(1))
    tail = watch(bench, threads, patience_s=0)
    await tail.tick(HELD)
    with pytest.raises(NoProgress, match="no progress from 0@0"):
        await tail.tick(HELD)


async def test_a_log_that_is_away_is_not_a_fold_that_stands(
    bench: Bench, threads: tuple[OwnThread, OwnThread]
) -> None:
    tail = watch(bench, threads, patience_s=0)
    await tail.tick(HELD)
    bench.wal.go_away()
    await tail.tick(HELD)
    await tail.tick(HELD)
    assert not tail.status().ready
    bench.wal.come_back()
    await tail.tick(HELD)
    assert tail.status().ready


async def test_what_cannot_be_folded_halts_its_partition_and_is_tried_again(
    bench: Bench, threads: tuple[OwnThread, OwnThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_watch, "HALTED_RETRY_S", 0.0)
    bench.append(stored(1), rolled_back(0))
    tail = watch(bench, threads, patience_s=0)
    for _ in range(3):  # and is no fold that stands without a reason
        await tail.tick(NOBODY)
    assert bench.metrics.stands == {ZERO: True}
    assert bench.store.namespace(ALPHA).version == 1
    assert not tail.status().ready
    assert tail.status().partitions[ZERO].lag == 1


async def test_a_halted_partition_goes_on_once_its_record_can_be_folded(
    bench: Bench, threads: tuple[OwnThread, OwnThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_watch, "HALTED_RETRY_S", 0.05)
    bench.append(stored(1), stored(2))
    folder = bench.folder()
    folder.halt(FoldStopped("0@0", "for a reason that is gone"))
    tail = TailWatch(
        {ZERO: folder}, bench.reader, bench.metrics, Watchdog(60), *threads, never
    )
    await tail.tick(HELD)
    assert bench.store.namespace(ALPHA).version == 0
    await asyncio.sleep(0.06)
    await tail.tick(HELD)
    assert bench.store.namespace(ALPHA).version == 2
    assert bench.metrics.stands == {ZERO: False}
    assert tail.status().ready
