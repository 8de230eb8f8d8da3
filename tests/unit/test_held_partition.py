"""What is delivered skips, repeats and comes out of order; what is signed does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachemind.agents.held_partition import (
    BACKLOG_RECORDS,
    INBOX_RECORDS,
    HeldPartition,
)
from cachemind.agents.signer import Signer, SignerDeps, _Holding
from cachemind.agents.watchdog import Watchdog
from cachemind.core.receipt_follow import OTHER_LOG
from cachemind.errors import KeyRefused, KeyUnavailable, NoProgress
from cachemind.receipts import KeyRole
from cachemind.types import Offset, Partition
from tests.unit.signing_cases import ZERO, Signed


class Deliveries:
    """The group consumer, as it is asked to wait and to go on."""

    def __init__(self) -> None:
        self.held_back = 0
        self.went_on: list[Offset] = []

    def hold_back(self, partition: Partition) -> None:
        self.held_back += 1

    async def go_on_at(self, partition: Partition, offset: Offset) -> None:
        self.went_on.append(offset)


def held(log: Signed, deliveries: Deliveries | None = None) -> HeldPartition:
    return HeldPartition(
        log.signer(), log.wal.reader(), log.metrics, deliveries or Deliveries()
    )


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not reached():
            await asyncio.sleep(0.005)


async def ended(part: HeldPartition, task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert await part.leave(5)


@given(
    order=st.lists(st.integers(0, 11), max_size=30),
    gaps=st.sets(st.integers(0, 11)),
)
@settings(max_examples=30, deadline=None)
def test_records_are_signed_in_order_however_they_are_delivered(
    order: list[int], gaps: set[int]
) -> None:
    async def run() -> None:
        log = Signed()
        part = held(log)
        task = asyncio.create_task(part.run())
        for number in range(12):
            log.append()
            if number in gaps:
                log.wal.leave_gap(ZERO)
        records = log.records()
        for number in order:
            part.offer(records[number])
            await asyncio.sleep(0)
        part.look()
        await until(log.is_one_to_one)
        await ended(part, task)

    asyncio.run(run())


async def test_deliveries_alone_are_enough_once_it_has_caught_up() -> None:
    log = Signed()
    log.append(3)
    part = held(log)
    task = asyncio.create_task(part.run())
    await until(log.is_one_to_one)
    for _ in range(5):
        log.append()
        part.offer(log.records()[-1])
        await until(log.is_one_to_one)
    await ended(part, task)


async def test_more_deliveries_than_there_is_room_for_are_read_from_the_log() -> None:
    log = Signed()
    part = held(log)
    task = asyncio.create_task(part.run())
    await until(lambda: log.turns.now == 1)
    log.append(INBOX_RECORDS + 100)
    for record in log.records():
        part.offer(record)
    await until(log.is_one_to_one)
    await ended(part, task)


async def test_deliveries_are_held_back_while_a_backlog_is_read() -> None:
    log, deliveries = Signed(), Deliveries()
    log.append(BACKLOG_RECORDS)
    part = held(log, deliveries)
    task = asyncio.create_task(part.run())
    await until(lambda: bool(deliveries.went_on))
    assert deliveries.held_back == 1
    assert deliveries.went_on == [BACKLOG_RECORDS]
    await ended(part, task)


async def test_deliveries_are_held_back_until_the_end_of_the_receipts_is_found() -> (
    None
):
    log, deliveries = Signed(), Deliveries()
    log.append(3)
    log.audit.go_away()
    part = held(log, deliveries)
    task = asyncio.create_task(part.run())
    await until(lambda: deliveries.held_back == 1)
    assert deliveries.went_on == []
    log.audit.come_back()
    await until(lambda: bool(deliveries.went_on))
    assert (deliveries.held_back, deliveries.went_on) == (1, [3])
    assert log.is_one_to_one()
    await ended(part, task)


async def test_an_outage_is_waited_out_and_the_end_is_looked_for_again() -> None:
    log = Signed()
    log.append()
    part = held(log)
    task = asyncio.create_task(part.run())
    await until(log.is_one_to_one)
    log.audit.go_away()
    log.append()
    part.offer(log.records()[-1])
    await asyncio.sleep(0.1)
    log.audit.come_back()
    await until(log.is_one_to_one)
    assert log.turns.now > 1
    await ended(part, task)


async def test_a_key_that_is_away_is_waited_for_and_says_so() -> None:
    log = Signed()
    (key,) = log.held.keys[KeyRole.RECEIPT]
    key.failure = KeyUnavailable("k", "away")
    log.append()
    part = held(log)
    task = asyncio.create_task(part.run())
    await until(lambda: part.waits_for_key)
    key.failure = None
    await until(log.is_one_to_one)
    assert not part.waits_for_key
    await ended(part, task)


async def test_a_key_that_will_never_sign_ends_the_work() -> None:
    log = Signed()
    log.held.keys[KeyRole.RECEIPT].clear()
    log.append()
    with pytest.raises(KeyRefused):
        await held(log).run()


async def test_receipts_that_cannot_go_on_end_the_work_with_the_reason() -> None:
    log = Signed()
    log.append()
    log.sign_all()
    log.wal = Signed().wal
    part = held(log)
    await part.run()
    assert part.broken
    assert log.metrics.why == [OTHER_LOG]


async def test_a_partition_that_stands_is_looked_at_and_ends_the_process() -> None:
    log = Signed()
    log.append()
    part = held(log)
    deps = SignerDeps(
        signer_of=lambda _: log.signer(),
        ends=dict,
        cutter_of=lambda: None,  # type: ignore[arg-type,return-value]  # not asked
        keys=log.watch,
        wal=log.wal.reader(),
        group_offsets=None,  # type: ignore[arg-type]  # not asked
        kafka={},
        wal_topic="wal",
        group="group",
        instance="instance",
        metrics=log.metrics,
        stop=asyncio.Event(),
    )
    signer = Signer(deps)
    nothing = asyncio.create_task(asyncio.sleep(0))
    holding = _Holding(part, nothing, Watchdog(3600))
    await signer._look(holding)
    assert not part._wake.is_set()
    await signer._look(holding)
    assert part._wake.is_set()
    holding.watchdog._patience_s = 0
    with pytest.raises(NoProgress):
        await signer._look(holding)
    await nothing
