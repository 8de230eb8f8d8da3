"""Group commit, sequence, deadline and breaker of a worker's side of the WAL."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import Future
from dataclasses import replace

import pytest

from cachemind.adapters.clock import ManualClock
from cachemind.adapters.memory_log import MemoryLog
from cachemind.codec.codec import Codec
from cachemind.core.identifiers import parse_traceparent
from cachemind.core.operation import hash_of
from cachemind.errors import LogRejected, LogUnavailable
from cachemind.events import Envelope, Outcome, Read, Reads, Refused
from cachemind.ports import Headers, LogWriter
from cachemind.types import (
    FIRST_TIMELINE,
    ExactKey,
    Lsn,
    Offset,
    Partition,
    Principal,
    Sha256,
    Timeline,
    TraceId,
    Version,
)
from cachemind_services.gateway.identity import Ids
from cachemind_services.gateway.metrics import GatewayMetrics
from cachemind_services.gateway.wal_session import MOST_READS, WalSession
from tests.gateways import NAMESPACE, changed

CODEC = Codec()
TRACE = TraceId(b"\7" * 16)


def read(number: int = 0) -> Read:
    return Read(
        trace_id=TRACE,
        principal=Principal("p"),
        occurred_at_ns=number,
        outcome=Outcome.MISS,
        exact_key=ExactKey(bytes(32)),
        matched_key=None,
        similarity=None,
        strategy="exact",
        version_seen=Version(0),
        prompt_hash=Sha256(bytes(32)),
        response_hash=None,
        reason="",
    )


REFUSED = Refused(
    exact_key=ExactKey(bytes(32)), trace_id=TRACE, reason="r", upstream_status=0
)


def session(wal: LogWriter, **settings: object) -> WalSession:
    return WalSession(
        wal,
        CODEC,
        ManualClock(1_000_000_000),
        changed(**settings),
        GatewayMetrics(),
        Ids(os.urandom),
    )


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(1, ManualClock(0))


def events(log: MemoryLog) -> list[Envelope]:
    reader = log.reader()
    first, end = reader.bounds(Partition(0))
    return [
        CODEC.decode(record.value)
        for batch in reader.read(Partition(0), first, end)
        for record in batch
        if record.value is not None
    ]


def groups(log: MemoryLog) -> list[int]:
    bodies = [event.body for event in events(log)]
    return [len(body.items) for body in bodies if isinstance(body, Reads)]


class Scripted:
    """A `LogWriter` whose every append the test answers by hand."""

    def __init__(self) -> None:
        self.asked: list[Future[Lsn]] = []

    def append(self, key: bytes, value: bytes, headers: Headers) -> Future[Lsn]:
        self.asked.append(Future())
        return self.asked[-1]

    def close(self, timeout_s: float) -> int:
        return 0


async def appended(writer: Scripted, number: int) -> None:
    while len(writer.asked) < number:
        await asyncio.sleep(0)


async def test_one_read_when_idle_is_one_record(log: MemoryLog) -> None:
    wal = session(log.writer())
    for number in range(3):
        assert await wal.read(read()) == Lsn(Partition(0), Offset(number))
    assert groups(log) == [1, 1, 1]


async def test_what_arrives_while_a_record_is_in_flight_goes_together(
    log: MemoryLog,
) -> None:
    wal = session(log.writer())
    log.hold()
    first = wal.read(read())
    await asyncio.sleep(0.01)
    rest = [wal.read(read(number)) for number in range(1, 40)]
    log.release()
    lsns = await asyncio.gather(first, *rest)
    assert groups(log) == [1, 39]
    assert len(set(lsns)) == 2
    body = events(log)[1].body
    assert isinstance(body, Reads)
    assert [each.occurred_at_ns for each in body.items] == list(range(1, 40))


async def test_the_next_record_leaves_before_the_last_one_is_answered() -> None:
    writer = Scripted()
    wal = session(writer)
    records_at_answer: list[int] = []

    async def answered(ack: asyncio.Future[Lsn]) -> None:
        await ack
        records_at_answer.append(len(writer.asked))

    first = [asyncio.create_task(answered(wal.read(read()))) for _ in range(3)]
    await appended(writer, 1)
    second = wal.read(read())
    writer.asked[0].set_result(Lsn(Partition(0), Offset(0)))
    await asyncio.gather(*first)
    assert records_at_answer == [2, 2, 2]
    writer.asked[1].set_result(Lsn(Partition(0), Offset(1)))
    await second


async def test_a_record_carries_a_bounded_number_of_reads(log: MemoryLog) -> None:
    wal = session(log.writer())
    await asyncio.gather(*(wal.read(read()) for _ in range(2 * MOST_READS + 1)))
    assert groups(log) == [MOST_READS, MOST_READS, 1]


async def test_an_event_is_whole(log: MemoryLog) -> None:
    wal = session(log.writer())
    wal.timeline = Timeline(5)
    await wal.read(read())
    await wal.append(REFUSED, TRACE)
    found = events(log)
    assert [event.writer_seq for event in found] == [1, 2]
    assert {event.timeline for event in found} == {5}
    assert {event.namespace for event in found} == {NAMESPACE}
    assert len({event.event_id for event in found}) == 2
    for event in found:
        assert event.trace_id == TRACE
        assert event.op_hash == hash_of(event.body, event.occurred_at_ns)
    record = next(iter(log.reader().read(Partition(0), Offset(0), Offset(1))))[0]
    assert record.key == NAMESPACE.encode()
    trace = dict(record.headers)["traceparent"].decode()
    assert parse_traceparent(trace) == TRACE
    assert wal.newest == Lsn(Partition(0), Offset(1))
    assert session(log.writer()).timeline == FIRST_TIMELINE


async def test_a_silent_log_fails_a_whole_round_and_then_everybody_at_once() -> None:
    writer = Scripted()
    wal = session(writer, wal_timeout_s=0.02, wal_retry_s=60.0)
    found = await asyncio.gather(
        *(wal.read(read()) for _ in range(5)), return_exceptions=True
    )
    assert all(isinstance(each, LogUnavailable) for each in found)
    assert not wal.available
    with pytest.raises(LogUnavailable):
        wal.read(read())
    with pytest.raises(LogUnavailable):
        await wal.append(REFUSED, TRACE)
    wal.probe(read())
    await asyncio.sleep(0.01)
    assert len(writer.asked) == 1


async def test_a_probe_finds_the_log_back() -> None:
    writer = Scripted()
    wal = session(writer, wal_retry_s=0.0)
    waiting = wal.read(read())
    await appended(writer, 1)
    writer.asked[0].set_exception(LogUnavailable("away"))
    with pytest.raises(LogUnavailable):
        await waiting
    wal.probe(read())
    wal.probe(read())
    await appended(writer, 2)
    await asyncio.sleep(0.01)
    assert len(writer.asked) == 2
    writer.asked[1].set_result(Lsn(Partition(0), Offset(3)))
    while not wal.available:
        await asyncio.sleep(0)
    assert wal.newest == Lsn(Partition(0), Offset(3))


async def test_without_look_ups_an_append_finds_the_log_back() -> None:
    writer = Scripted()
    wal = session(writer, wal_retry_s=0.0)
    for number in (1, 2):
        waiting = asyncio.create_task(wal.append(REFUSED, TRACE))
        await appended(writer, number)
        if number == 2:  # a probe, and one is enough
            with pytest.raises(LogUnavailable):
                await wal.append(REFUSED, TRACE)
        writer.asked[-1].set_exception(LogUnavailable("away"))
        with pytest.raises(LogUnavailable):
            await waiting
    last = asyncio.create_task(wal.append(REFUSED, TRACE))
    await appended(writer, 3)
    writer.asked[2].set_result(Lsn(Partition(0), Offset(3)))
    assert (await last).lsn.offset == 3
    assert wal.available


async def test_a_late_acknowledgement_says_that_the_log_is_back() -> None:
    writer = Scripted()
    wal = session(writer, wal_timeout_s=0.01)
    with pytest.raises(LogUnavailable):
        await wal.append(REFUSED, TRACE)
    assert not wal.available
    writer.asked[0].set_result(Lsn(Partition(0), Offset(0)))
    await asyncio.sleep(0.01)
    assert [wal.available] == [True]


async def test_a_rejected_record_does_not_close_the_log() -> None:
    writer = Scripted()
    wal = session(writer)
    waiting = wal.read(read())
    await appended(writer, 1)
    writer.asked[0].set_exception(LogRejected("too large"))
    with pytest.raises(LogRejected):
        await waiting
    assert wal.available


async def test_an_event_that_cannot_be_written_fails_alone(log: MemoryLog) -> None:
    wal = session(log.writer())
    broken = replace(read(), version_seen=Version(2**70))
    with pytest.raises(LogRejected):
        await wal.read(broken)
    with pytest.raises(LogRejected):
        await wal.append(replace(REFUSED, upstream_status=2**70), TRACE)
    await wal.read(read())
    assert groups(log) == [1]


async def test_only_so_many_look_ups_wait(log: MemoryLog) -> None:
    wal = session(log.writer(), wal_buffer=3)
    log.hold()
    waiting = [wal.read(read()) for _ in range(3)]
    with pytest.raises(LogUnavailable):
        wal.read(read())
    await asyncio.sleep(0.01)
    log.release()
    await asyncio.gather(*waiting)
    await wal.read(read())


async def test_a_caller_that_goes_away_leaves_the_append_its_answer() -> None:
    writer = Scripted()
    wal = session(writer)
    task = asyncio.create_task(wal.append(REFUSED, TRACE))
    await appended(writer, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    flushing = asyncio.create_task(wal.flush(5))
    await asyncio.sleep(0.01)
    assert not flushing.done()
    writer.asked[0].set_result(Lsn(Partition(0), Offset(9)))
    await flushing
    assert wal.newest == Lsn(Partition(0), Offset(9))
