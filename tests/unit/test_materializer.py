from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from cachemind.adapters.memory_store import MemoryStore
from cachemind.agents.materializer import (
    EXIT_STOPPED,
    EXIT_USAGE,
    MaterializerDeps,
    run_materializer,
)
from cachemind.errors import StoreUnavailable
from tests.unit.folding_bench import CODEC, ZERO, Bench, Counted
from tests.unit.test_group_hint import Group
from tests.wal_events import rolled_back, stored


def deps(bench: Bench, **kafka: str) -> MaterializerDeps:
    """Return what a materializer stands on, its Kafka nowhere."""
    return MaterializerDeps(
        decoder=CODEC,
        reader=bench.reader,
        stores={ZERO: bench.store},
        dead_letters=bench.dlq.writer(),
        group_offsets=Group(None),
        kafka={"bootstrap.servers": "127.0.0.1:1", **kafka},
        wal_topic="wal",
        group="group",
        metrics=Counted(),
        stop=asyncio.Event(),
    )


async def test_a_setting_that_faust_lacks_is_wrong_usage() -> None:
    bench = Bench()
    assert await run_materializer(deps(bench, **{"sasl.kerberos.keytab": "k"})) == (
        EXIT_USAGE
    )


async def test_an_event_that_halts_the_fold_keeps_what_came_before() -> None:
    bench = Bench()
    bench.append(stored(1), rolled_back(0))
    group, metrics = Group(None), Counted()
    stood_on = replace(deps(bench), group_offsets=group, metrics=metrics)
    run = asyncio.create_task(run_materializer(stood_on))
    while not metrics.stands.get(ZERO):
        await asyncio.sleep(0.01)
    assert not run.done()
    stood_on.stop.set()
    assert await run == 0
    assert group.at == {ZERO: 1}
    with pytest.raises(StoreUnavailable):
        bench.store.rows()  # it was closed


async def test_a_cold_start_waits_for_the_log_until_told_to_stop() -> None:
    bench = Bench()
    bench.wal.go_away()
    stood_on = deps(bench)
    run = asyncio.create_task(run_materializer(stood_on))
    await asyncio.sleep(0.1)
    assert not run.done()
    stood_on.stop.set()
    assert await run == 0


async def test_a_store_that_does_not_close_is_not_a_clean_end() -> None:
    bench = Bench()
    bench.store = Unclosable()
    stood_on = deps(bench)
    bench.wal.go_away()
    stood_on.stop.set()
    assert await run_materializer(stood_on) == EXIT_STOPPED


class Unclosable(MemoryStore):
    """A store whose last flush fails."""

    def close(self) -> None:
        raise StoreUnavailable("no space left")
