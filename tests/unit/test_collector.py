"""Whose turn it is to be swept, and what ends a sweep."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from cachemind.agents.collector import CollectorDeps, Sweeps, rest_s
from cachemind.errors import LogUnavailable, StoreUnavailable
from cachemind.types import Partition

ZERO, ONE = Partition(0), Partition(1)
WAIT_S = 10.0


class Sweeper:
    """Counts what is asked of it; its sweeps last until they are to stop, if `long`."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.sweeps = 0
        self.stopped = threading.Event()
        self.closed = False
        self.long = False
        self.fails: Exception | None = None

    def sweep(self, should_stop: Callable[[], bool]) -> None:
        assert not self.closed
        self.sweeps += 1
        if self.fails is not None:
            raise self.fails
        while self.long and not should_stop():
            time.sleep(0.001)
        if self.long:
            self.stopped.set()

    def close(self) -> None:
        self.closed = True


class Bench:
    """Sweeps of counted sweepers."""

    def __init__(self) -> None:
        self.made: list[Sweeper] = []
        self.failures: list[tuple[Partition, str]] = []
        self.long = False
        self.fails: Exception | None = None
        self.sweeps = Sweeps(
            CollectorDeps(
                open_sweeper=self._open,
                ask_log=lambda: None,
                kafka={},
                topic="wal",
                group="collector",
                instance="one",
                interval_s=0.01,
                metrics=self,
                stop=asyncio.Event(),
                patience_s=60,
            )
        )

    def evicted(self, partition: Partition, reason: str, entries: int) -> None: ...

    def swept(self, partition: Partition, took_s: float, at_ns: int) -> None: ...

    def failed(self, partition: Partition, reason: str) -> None:
        self.failures.append((partition, reason))

    def _open(self, partition: Partition) -> Sweeper:
        made = Sweeper(partition)
        made.long, made.fails = self.long, self.fails
        self.made.append(made)
        return made


@asynccontextmanager
async def running(bench: Bench) -> AsyncIterator[None]:
    task = asyncio.create_task(bench.sweeps.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        await bench.sweeps.close()


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not holds():
            await asyncio.sleep(0.005)


async def test_each_partition_that_is_given_is_swept_again_and_again() -> None:
    bench = Bench()
    async with running(bench):
        bench.sweeps.given = {ZERO, ONE}
        await until(lambda: len(bench.made) == 2 and bench.made[1].sweeps >= 2)
    assert [one.partition for one in bench.made] == [ZERO, ONE]
    assert all(one.closed for one in bench.made)


async def test_a_partition_that_is_given_to_another_is_let_go_at_once() -> None:
    bench = Bench()
    bench.long = True
    async with running(bench):
        bench.sweeps.given = {ZERO}
        await until(lambda: bench.made and bench.made[0].sweeps)
        bench.sweeps.given = frozenset()
        await until(lambda: bench.made[0].closed)
        # It comes back, to a sweeper that takes it over anew.
        bench.long = False
        bench.sweeps.given = {ZERO}
        await until(lambda: len(bench.made) == 2 and bench.made[1].sweeps)
    assert bench.made[0].sweeps == 1


async def test_a_sweep_under_way_ends_with_the_process() -> None:
    bench = Bench()
    bench.long = True
    async with running(bench):
        bench.sweeps.given = {ZERO}
        await until(lambda: bench.made and bench.made[0].sweeps)
    assert bench.made[0].stopped.is_set()
    assert bench.made[0].closed


async def test_what_cannot_be_swept_just_now_is_swept_later() -> None:
    bench = Bench()
    bench.fails = StoreUnavailable("no store here yet")
    async with running(bench):
        bench.sweeps.given = {ZERO}
        await until(lambda: bench.failures)
        bench.made[0].fails = LogUnavailable("away")
        await until(lambda: (ZERO, "log") in bench.failures)
        bench.made[0].fails = None
        failed = len(bench.failures)
        done = bench.made[0].sweeps
        await until(lambda: bench.made[0].sweeps > done + 1)
    assert bench.failures[0] == (ZERO, "store")
    assert len(bench.failures) <= failed + 1
    assert len(bench.made) == 1


@pytest.mark.parametrize(
    ("worked_s", "rests_s"),
    [
        pytest.param(0.5, 60, id="a-small-store"),
        pytest.param(10, 90, id="one-that-takes-long-to-look-at"),
    ],
)
def test_it_is_at_rest_most_of_the_time(worked_s: float, rests_s: float) -> None:
    assert rest_s(60, worked_s) == rests_s
