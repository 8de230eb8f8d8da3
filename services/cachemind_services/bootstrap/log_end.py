"""Where a partition's last record is: a log's end may lie behind it.

Each transaction leaves a marker, which takes an offset and is never delivered, and so
does each record of a transaction that was aborted. Who waits for a fold to come to the
end of the log must not wait for any of them.
"""

from __future__ import annotations

from typing import Final

from cachemind.ports import LogReader
from cachemind.types import Offset, Partition

FEW: Final = 1_000
"""Offsets that are looked through: a transaction has a record, so most have few."""

FIRST_LOOK: Final = 10
WIDER: Final = 10


def records_end(reader: LogReader, partition: Partition, above: Offset) -> Offset:
    """Return the offset after the last committed record, at least `above`.

    `above` is an offset below which nothing is asked, unless more than a few follow.
    Raises: `LogUnavailable`.
    """
    first, end = reader.bounds(partition)
    start = Offset(max(first, above))
    if end - start > FEW:
        return max(start, last_end(reader, partition))
    return _end_between(reader, partition, start, end) or start


def last_end(reader: LogReader, partition: Partition) -> Offset:
    """Return the offset after the last committed record, the first where none is.

    Looks back further and further: there are seldom more than markers at the end.
    Raises: `LogUnavailable`.
    """
    first, end = reader.bounds(partition)
    width = FIRST_LOOK
    while True:
        start = Offset(max(first, end - width))
        found = _end_between(reader, partition, start, end)
        if found is not None:
            return found
        if start == first:
            return first
        width *= WIDER


def _end_between(
    reader: LogReader, partition: Partition, start: Offset, end: Offset
) -> Offset | None:
    last = None
    for batch in reader.read(partition, start, end) if start < end else ():
        for record in batch:
            last = Offset(record.lsn.offset + 1)
    return last
