"""Where a partition's last record is: a log's end may lie behind it.

Each transaction leaves a marker, which takes an offset and is never delivered. Who
waits for a fold to come to the end of the log must not wait for a marker.
"""

from __future__ import annotations

from typing import Final

from cachemind.ports import LogReader
from cachemind.types import Offset, Partition

FEW: Final = 1_000
"""Offsets that are looked through: a transaction has a record, so most have few."""


def records_end(reader: LogReader, partition: Partition, above: Offset) -> Offset:
    """Return the offset after the last committed record, at least `above`.

    `above` is an offset below which nothing is asked. Where more than a few follow it,
    the log's own end, which is as good to whoever waits.
    Raises: `LogUnavailable`.
    """
    first, end = reader.bounds(partition)
    start = max(first, above)
    if end - start > FEW:
        return end
    last = Offset(start)
    for batch in reader.read(partition, last, end) if start < end else ():
        for record in batch:
            last = Offset(record.lsn.offset + 1)
    return last
