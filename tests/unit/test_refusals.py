"""Refusals on the log: what they say, and that nobody can fill the log with them."""

from __future__ import annotations

import os

from cachemind.adapters.clock import ManualClock
from cachemind.adapters.memory_log import MemoryLog
from cachemind.codec.codec import Codec
from cachemind.core.access import Right
from cachemind.errors import Forbidden, Unauthenticated
from cachemind.events import Outcome, Read, Reads
from cachemind.types import ID_BYTES, Partition, Principal, TraceId
from cachemind_services.gateway.identity import Ids
from cachemind_services.gateway.metrics import GatewayMetrics
from cachemind_services.gateway.refusals import RATE, Refusals
from cachemind_services.gateway.wal_session import WalSession
from tests.gateways import changed

NS_PER_S = 1_000_000_000
TRACE = TraceId(b"\7" * ID_BYTES)


class Desk:
    """Refusals over a memory log, at a time that stands still."""

    def __init__(self) -> None:
        self.clock = ManualClock(NS_PER_S)
        self.log = MemoryLog(1, self.clock)
        self.metrics = GatewayMetrics()
        self.refusals = Refusals(self.clock, self.metrics)
        self.wal = WalSession(
            self.log.writer(),
            Codec(),
            self.clock,
            changed(),
            self.metrics,
            Ids(os.urandom),
        )

    def logged(self) -> list[Read]:
        reader, home = self.log.reader(), Partition(0)
        bodies = [
            Codec().decode(record.value or b"").body
            for batch in reader.read(home, *reader.bounds(home))
            for record in batch
        ]
        return [r for body in bodies if isinstance(body, Reads) for r in body.items]

    @property
    def unlogged(self) -> float:
        return float(self.metrics.refusals_unlogged._value.get())


async def test_a_refusal_says_who_and_which_right_and_nothing_else() -> None:
    desk = Desk()
    desk.refusals.tell(desk.wal, TRACE, Unauthenticated())
    someone = Principal("key:Abcdefg2")
    desk.refusals.tell(desk.wal, TRACE, Forbidden(Right.ROLLBACK), someone)
    await desk.wal.flush(5)
    first, second = desk.logged()
    assert (first.principal, first.reason) == ("anonymous", "unauthenticated")
    assert (second.principal, second.reason) == (someone, "forbidden:rollback")
    assert {read.outcome for read in (first, second)} == {Outcome.BYPASS}
    assert {read.trace_id for read in (first, second)} == {TRACE}
    assert {bytes(read.exact_key) for read in (first, second)} == {bytes(32)}


async def test_refusals_above_the_rate_are_counted_and_not_logged() -> None:
    desk = Desk()
    for _ in range(int(RATE.burst) + 50):
        desk.refusals.tell(desk.wal, TRACE, Unauthenticated())
    await desk.wal.flush(5)
    assert len(desk.logged()) == RATE.burst
    assert desk.unlogged == 50
    desk.clock.advance(NS_PER_S)
    for _ in range(50):
        desk.refusals.tell(desk.wal, TRACE, Unauthenticated())
    await desk.wal.flush(5)
    assert len(desk.logged()) == RATE.burst + RATE.per_s
    refused = desk.metrics.refused.labels("unauthenticated")._value.get()
    assert refused == RATE.burst + 100


async def test_a_log_that_is_away_costs_a_refusal_its_record_and_no_more() -> None:
    desk = Desk()
    for _ in range(changed().wal_buffer):
        desk.wal.line.room -= 1
    desk.refusals.tell(desk.wal, TRACE, Unauthenticated())
    assert desk.unlogged == 1
