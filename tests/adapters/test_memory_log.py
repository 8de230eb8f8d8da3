from __future__ import annotations

import pytest

from cachemind.adapters.clock import ManualClock
from cachemind.adapters.memory_groups import MemoryGroupOffsets
from cachemind.adapters.memory_log import MemoryLog, MemoryLogReader, MemoryLogWriter
from cachemind.errors import LogRejected, LogUnavailable, OffsetOutOfRange
from cachemind.ports import GroupOffsets
from cachemind.types import Offset
from tests.contracts.log_contract import (
    ACK_S,
    HOME,
    KEY,
    PARTITIONS,
    GroupOffsetsContract,
    LogContract,
    append,
    flatten,
    values,
)

START_NS = 1_700_000_000_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_NS)


@pytest.fixture
def log(clock: ManualClock) -> MemoryLog:
    return MemoryLog(PARTITIONS, clock)


@pytest.fixture
def writer(log: MemoryLog) -> MemoryLogWriter:
    return log.writer()


@pytest.fixture
def reader(log: MemoryLog) -> MemoryLogReader:
    return log.reader()


class TestMemoryLog(LogContract):
    pass


class TestMemoryGroupOffsets(GroupOffsetsContract):
    @pytest.fixture
    def group(self) -> GroupOffsets:
        return MemoryGroupOffsets()


def test_a_live_group_commits_for_itself() -> None:
    group = MemoryGroupOffsets()
    group.alive = True
    with pytest.raises(LogRejected):
        group.commit({HOME: Offset(1)})
    assert group.committed([HOME]) == {HOME: None}


def test_nothing_is_taken_or_given_while_the_log_is_away(
    log: MemoryLog, writer: MemoryLogWriter, reader: MemoryLogReader
) -> None:
    append(writer, b"before")
    log.go_away()
    assert isinstance(writer.append(KEY, b"lost", ()).exception(ACK_S), LogUnavailable)
    with pytest.raises(LogUnavailable):
        reader.bounds(HOME)
    with pytest.raises(LogUnavailable):
        flatten(reader.read(HOME, Offset(0), Offset(1)))
    log.come_back()
    append(writer, b"after")
    assert values(reader.read(HOME, *reader.bounds(HOME))) == [b"before", b"after"]


def test_held_appends_are_acknowledged_in_order_on_release(
    log: MemoryLog, writer: MemoryLogWriter, reader: MemoryLogReader
) -> None:
    log.hold()
    futures = [writer.append(KEY, b"%d" % i, ()) for i in range(3)]
    assert not any(future.done() for future in futures)
    assert reader.bounds(HOME) == (0, 0)
    log.release()
    assert [future.result(0).offset for future in futures] == [0, 1, 2]


def test_an_outage_fails_what_was_held(
    log: MemoryLog, writer: MemoryLogWriter, reader: MemoryLogReader
) -> None:
    log.hold()
    future = writer.append(KEY, b"v", ())
    log.go_away()
    log.release()
    assert isinstance(future.exception(0), LogUnavailable)


def test_closing_gives_up_what_is_held_by_that_writer_only(
    log: MemoryLog, writer: MemoryLogWriter
) -> None:
    log.hold()
    other = log.writer().append(KEY, b"other", ())
    mine = writer.append(KEY, b"mine", ())
    assert writer.close(0) == 1
    assert isinstance(mine.exception(0), LogUnavailable)
    log.release()
    assert other.result(0).offset == 0


def test_a_gap_has_no_record_and_hangs_no_reader(
    log: MemoryLog, writer: MemoryLogWriter, reader: MemoryLogReader
) -> None:
    log.leave_gap(HOME, 2)
    append(writer, b"1")
    log.leave_gap(HOME)
    append(writer, b"2")
    log.leave_gap(HOME, 3)
    assert reader.bounds(HOME) == (0, 8)
    records = flatten(reader.read(HOME, Offset(0), Offset(8)))
    assert [(r.lsn.offset, r.value) for r in records] == [(2, b"1"), (4, b"2")]


def test_what_retention_deleted_cannot_be_read(
    log: MemoryLog, writer: MemoryLogWriter, reader: MemoryLogReader
) -> None:
    append(writer, b"1", b"2", b"3")
    log.delete_before(HOME, Offset(2))
    assert reader.bounds(HOME) == (2, 3)
    with pytest.raises(OffsetOutOfRange) as caught:
        flatten(reader.read(HOME, Offset(0), Offset(3)))
    assert caught.value.first == 2
    assert values(reader.read(HOME, Offset(2), Offset(3))) == [b"3"]


def test_a_record_carries_the_clocks_time_in_milliseconds(
    clock: ManualClock, writer: MemoryLogWriter, reader: MemoryLogReader
) -> None:
    append(writer, b"1")
    clock.advance(5_000_000)
    append(writer, b"2")
    records = flatten(reader.read(HOME, Offset(0), Offset(2)))
    start_ms = START_NS // 1_000_000
    assert [r.timestamp_ms for r in records] == [start_ms, start_ms + 5]
