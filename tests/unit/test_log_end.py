"""Where the records of a log end: offsets at its end may hold none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pytest

from cachemind.ports import LogRecord
from cachemind.types import Lsn, Offset, Partition
from cachemind_services.bootstrap.log_end import FEW, last_end, records_end

PARTITION = Partition(0)


class Log:
    """A `LogReader` of one partition with records at some of its offsets."""

    def __init__(self, records: Sequence[int], end: int, first: int = 0) -> None:
        self.records = records
        self.end = end
        self.first = first
        self.looked: list[tuple[int, int]] = []

    def bounds(self, partition: Partition) -> tuple[Offset, Offset]:
        return Offset(self.first), Offset(self.end)

    def read(
        self, partition: Partition, start: Offset, end: Offset
    ) -> Iterable[Sequence[LogRecord]]:
        self.looked.append((start, end))
        yield [
            LogRecord(
                lsn=Lsn(partition, Offset(at)),
                key=b"",
                value=b"",
                headers=(),
                timestamp_ms=0,
            )
            for at in self.records
            if start <= at < end
        ]

    def first_after(self, partition: Partition, time_ms: int) -> Offset:
        raise AssertionError("nobody asks by time")

    def follow(
        self, starts: Mapping[Partition, Offset], should_stop: Callable[[], bool]
    ) -> Iterator[Sequence[LogRecord]]:
        raise AssertionError("nobody follows")

    def close(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (Log([], 0), 0),
        (Log([], 5_000), 0),
        (Log([], 50, first=40), 40),
        (Log([7], 8), 8),
        (Log([7], 9), 8),  # a marker
        (Log([7], 300), 8),  # an aborted batch
        (Log([7], 50_000), 8),
        (Log([7, 49_999], 50_000), 50_000),
    ],
)
def test_the_last_record_is_found_however_much_was_aborted_after_it(
    log: Log, expected: int
) -> None:
    assert last_end(log, PARTITION) == expected
    assert records_end(log, PARTITION, Offset(0)) == expected


def test_only_the_end_is_looked_at_where_a_record_is() -> None:
    log = Log(range(100_000), 100_001)
    assert last_end(log, PARTITION) == 100_000
    assert sum(end - start for start, end in log.looked) <= FEW


def test_nothing_below_what_is_known_is_asked() -> None:
    log = Log([7], 300)
    assert records_end(log, PARTITION, Offset(250)) == 250
    assert log.looked == [(250, 300)]
