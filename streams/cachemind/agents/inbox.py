"""What was delivered of one partition and waits for its handler."""

from __future__ import annotations

import asyncio
from typing import Final

from cachemind.ports import LogRecord
from cachemind.types import Offset

MOST_RECORDS: Final = 1_000
MOST_BYTES: Final = 16 * 2**20
"""Of keys, values and headers; a little more comes that was on its way."""


class Inbox(asyncio.Queue[LogRecord]):
    """A queue that says when it is full, and takes what is on its way nevertheless.

    Who delivers serves all partitions, so it must never wait for one of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.newest = Offset(-1)
        self._bytes = 0

    @property
    def full_enough(self) -> bool:
        """Return whether nothing more should be delivered."""
        return self.qsize() >= MOST_RECORDS or self._bytes >= MOST_BYTES

    @property
    def has_room(self) -> bool:
        """Return whether to go on after it was full: once half of it is gone."""
        return self.qsize() <= MOST_RECORDS // 2 and self._bytes <= MOST_BYTES // 2

    def deliver(self, record: LogRecord) -> None:
        """Take a record, unless it was delivered before: a rebalance has it again."""
        if record.lsn.offset > self.newest:
            self.newest = record.lsn.offset
            self.put_nowait(record)

    def _put(self, item: LogRecord) -> None:
        self._bytes += item.size_bytes
        super()._put(item)

    def _get(self) -> LogRecord:
        item = super()._get()
        self._bytes -= item.size_bytes
        return item
