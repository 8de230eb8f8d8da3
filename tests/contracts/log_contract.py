"""What every `LogWriter` and `LogReader` on one topic promise.

Subclass it and give fixtures `writer` and `reader` on a new topic of `PARTITIONS`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, wait
from itertools import count
from typing import Protocol

import pytest

from cachemind.core.partitioner import partition_of
from cachemind.core.topics import MAX_RECORD_BYTES
from cachemind.errors import LogRejected, LogUnavailable, OffsetOutOfRange
from cachemind.ports import (
    GroupOffsets,
    Headers,
    LogFollower,
    LogReader,
    LogRecord,
    LogWriter,
)
from cachemind.types import Lsn, Offset, Partition

PARTITIONS = 4
ACK_S = 30.0
KEY = b"team-a"
HOME = partition_of(KEY, PARTITIONS)
OTHER = Partition((HOME + 1) % PARTITIONS)


def append(
    writer: LogWriter, *values: bytes, key: bytes = KEY, headers: Headers = ()
) -> list[Lsn]:
    """Append `values` without waiting in between; return their LSNs."""
    futures = [writer.append(key, value, headers) for value in values]
    return [future.result(ACK_S) for future in futures]


def flatten(batches: Iterable[Sequence[LogRecord]]) -> list[LogRecord]:
    return [record for batch in batches for record in batch]


def values(batches: Iterable[Sequence[LogRecord]]) -> list[bytes | None]:
    return [record.value for record in flatten(batches)]


class Reader(LogReader, LogFollower, Protocol):
    """Both ways to read, as the adapters offer them."""


class LogContract:
    """One test a promise of the ports."""

    def test_a_record_is_read_back_as_it_was_appended(
        self, writer: LogWriter, reader: LogReader
    ) -> None:
        headers: Headers = (("traceparent", b"00-01"), ("empty", b""), ("x", b"\xff"))
        (lsn,) = append(writer, b"\x00value", headers=headers)
        (record,) = flatten(reader.read(HOME, *reader.bounds(HOME)))
        assert record.lsn == lsn
        assert (record.key, record.value) == (KEY, b"\x00value")
        assert record.headers == headers
        assert record.timestamp_ms > 0

    @pytest.mark.parametrize("key", [b"a", b"team-a", b"x" * 128, "größe".encode()])
    def test_a_record_goes_where_kafkas_default_partitioner_sends_it(
        self, writer: LogWriter, key: bytes
    ) -> None:
        (lsn,) = append(writer, b"v", key=key)
        assert lsn.partition == partition_of(key, PARTITIONS)

    def test_records_of_a_key_are_in_the_order_of_their_appends(
        self, writer: LogWriter, reader: LogReader
    ) -> None:
        sent = [b"%d" % i for i in range(2_000)]
        lsns = append(writer, *sent)
        assert lsns == sorted(set(lsns))
        assert values(reader.read(HOME, *reader.bounds(HOME))) == sent

    def test_threads_may_append_at_once(
        self, writer: LogWriter, reader: LogReader
    ) -> None:
        def run(name: bytes) -> None:
            append(writer, *(b"%s-%03d" % (name, i) for i in range(200)))

        threads = [threading.Thread(target=run, args=(n,)) for n in (b"a", b"b", b"c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seen = values(reader.read(HOME, *reader.bounds(HOME)))
        assert len(seen) == 600
        for name in (b"a", b"b", b"c"):
            own = [value for value in seen if value and value.startswith(name)]
            assert own == sorted(own)
            assert len(own) == 200

    def test_an_untouched_partition_is_empty(
        self, writer: LogWriter, reader: LogReader
    ) -> None:
        append(writer, b"v")
        assert reader.bounds(OTHER) == (0, 0)
        assert flatten(reader.read(OTHER, Offset(0), Offset(0))) == []

    def test_an_acknowledged_record_is_within_the_bounds_at_once(
        self, writer: LogWriter, reader: LogReader
    ) -> None:
        for number in range(1, 20):
            (lsn,) = append(writer, b"v")
            assert reader.bounds(HOME) == (0, lsn.offset + 1) == (0, number)

    @pytest.mark.parametrize(("start", "end"), [(0, 10), (3, 7), (9, 10), (5, 5)])
    def test_a_range_is_read_without_its_end(
        self, writer: LogWriter, reader: LogReader, start: int, end: int
    ) -> None:
        append(writer, *(b"%d" % i for i in range(12)))
        read = values(reader.read(HOME, Offset(start), Offset(end)))
        assert read == [b"%d" % i for i in range(start, end)]

    def test_several_reads_may_be_under_way(
        self, writer: LogWriter, reader: LogReader
    ) -> None:
        append(writer, b"1", b"2")
        one = iter(reader.read(HOME, Offset(0), Offset(2)))
        other = iter(reader.read(HOME, Offset(1), Offset(2)))
        assert values([next(one)])[0] == b"1"
        assert values([next(other)]) == [b"2"]

    def test_a_read_past_the_end_gives_up_instead_of_hanging(
        self, writer: LogWriter, reader: LogReader
    ) -> None:
        append(writer, b"v")
        with pytest.raises(LogUnavailable):
            flatten(reader.read(HOME, Offset(0), Offset(2)))

    def test_a_read_from_where_the_log_never_was_says_so(
        self, writer: LogWriter, reader: LogReader
    ) -> None:
        append(writer, b"v")
        with pytest.raises(OffsetOutOfRange) as caught:
            flatten(reader.read(HOME, Offset(5), Offset(6)))
        error = caught.value
        assert (error.asked, error.first, error.end) == (5, 0, 1)

    def test_a_partition_that_does_not_exist_is_unavailable(
        self, writer: LogWriter, reader: LogReader
    ) -> None:
        append(writer, b"v")
        with pytest.raises(LogUnavailable):
            reader.bounds(Partition(PARTITIONS))

    def test_a_record_that_is_too_large_is_rejected_and_the_next_is_not(
        self, writer: LogWriter
    ) -> None:
        future = writer.append(KEY, bytes(MAX_RECORD_BYTES + 1), ())
        assert isinstance(future.exception(ACK_S), LogRejected)
        (lsn,) = append(writer, b"v")
        assert lsn.offset == 0

    def test_a_long_record_is_taken(self, writer: LogWriter, reader: LogReader) -> None:
        long = bytes(MAX_RECORD_BYTES - 1024)
        append(writer, long, b"short")
        assert values(reader.read(HOME, *reader.bounds(HOME))) == [long, b"short"]

    def test_an_append_cannot_be_cancelled(self, writer: LogWriter) -> None:
        # asyncio.wrap_future would pass a cancellation on to it.
        future = writer.append(KEY, b"v", ())
        assert not future.cancel()
        assert future.result(ACK_S) == Lsn(HOME, Offset(0))

    def test_a_callback_that_fails_stops_nothing(self, writer: LogWriter) -> None:
        def fail(_: Future[Lsn]) -> None:
            raise RuntimeError("a caller's bug")

        writer.append(KEY, b"1", ()).add_done_callback(fail)
        assert append(writer, b"2") == [Lsn(HOME, Offset(1))]

    def test_closing_waits_for_what_is_in_flight(
        self, writer: LogWriter, reader: LogReader
    ) -> None:
        futures = [writer.append(KEY, b"v", ()) for _ in range(500)]
        assert writer.close(ACK_S) == 0
        assert not wait(futures, 0).not_done
        assert {future.exception() for future in futures} == {None}
        assert reader.bounds(HOME) == (0, 500)

    def test_a_closed_writer_takes_nothing(self, writer: LogWriter) -> None:
        writer.close(ACK_S)
        error = writer.append(KEY, b"v", ()).exception(ACK_S)
        assert isinstance(error, LogUnavailable)

    def test_closing_twice_is_closing_once(self, writer: LogWriter) -> None:
        writer.append(KEY, b"v", ())
        assert writer.close(ACK_S) == 0
        assert writer.close(ACK_S) == 0

    def test_a_follower_sees_what_was_and_what_comes(
        self, writer: LogWriter, reader: Reader
    ) -> None:
        append(writer, b"1", b"2", b"3")
        seen: list[bytes | None] = []
        more = count(4)
        starts = {HOME: Offset(1), OTHER: Offset(0)}
        for batch in reader.follow(starts, lambda: len(seen) >= 5):
            seen.extend(values([batch]))
            if len(seen) in (2, 3, 4) and batch:
                append(writer, b"%d" % next(more))
        assert seen == [b"2", b"3", b"4", b"5", b"6"][: len(seen)]

    def test_a_follower_stops_when_told_though_nothing_comes(
        self, writer: LogWriter, reader: Reader
    ) -> None:
        append(writer, b"1")
        turns = count()
        batches = list(reader.follow({OTHER: Offset(0)}, lambda: next(turns) == 2))
        assert batches == [[], []]

    def test_a_follower_from_where_the_log_never_was_says_so(
        self, writer: LogWriter, reader: Reader
    ) -> None:
        append(writer, b"1")
        with pytest.raises(OffsetOutOfRange):
            for _ in reader.follow({HOME: Offset(7)}, lambda: False):
                pass


class GroupOffsetsContract:
    """One test a promise of `GroupOffsets`; give a fixture `group`."""

    def test_a_new_group_has_no_offsets(self, group: GroupOffsets) -> None:
        assert group.committed([HOME, OTHER]) == {HOME: None, OTHER: None}

    def test_what_was_committed_is_found(self, group: GroupOffsets) -> None:
        group.commit({HOME: Offset(7)})
        assert group.committed([HOME, OTHER]) == {HOME: 7, OTHER: None}

    def test_a_commit_may_go_backwards_and_leaves_others_alone(
        self, group: GroupOffsets
    ) -> None:
        group.commit({HOME: Offset(7), OTHER: Offset(3)})
        group.commit({HOME: Offset(0)})
        assert group.committed([HOME, OTHER]) == {HOME: 0, OTHER: 3}

    def test_nothing_asked_is_nothing_answered(self, group: GroupOffsets) -> None:
        group.commit({})
        assert group.committed([]) == {}
