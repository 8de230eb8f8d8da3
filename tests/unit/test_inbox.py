"""What waits for a handler: bounded by its number and by its size, each once."""

from __future__ import annotations

import asyncio

import pytest

from cachemind.agents.inbox import MOST_BYTES, MOST_RECORDS, Inbox
from cachemind.ports import LogRecord
from cachemind.types import Lsn, Offset, Partition


def record(offset: int, key: int = 0, value: int = 0, header: int = 0) -> LogRecord:
    return LogRecord(
        lsn=Lsn(Partition(0), Offset(offset)),
        key=bytes(key) or None,
        value=bytes(value) or None,
        headers=(("h", bytes(header)),),
        timestamp_ms=0,
    )


@pytest.mark.parametrize(
    ("many", "size"),
    [
        pytest.param(MOST_RECORDS, {}, id="by-number"),
        pytest.param(4, {"key": MOST_BYTES // 4}, id="keys"),
        pytest.param(4, {"value": MOST_BYTES // 4}, id="values"),
        pytest.param(4, {"header": MOST_BYTES // 4}, id="headers"),
    ],
)
async def test_it_is_full_and_has_room_once_half_is_gone(
    many: int, size: dict[str, int]
) -> None:
    inbox = Inbox()
    for offset in range(many):
        assert not inbox.full_enough
        inbox.deliver(record(offset, **size))
    # What is on its way comes in nevertheless.
    inbox.deliver(record(many))
    assert inbox.full_enough
    found = []
    while not inbox.has_room:
        found.append(inbox.get_nowait().lsn.offset)
    assert found == list(range(len(found)))
    assert many // 2 <= len(found) <= many // 2 + 1
    assert not inbox.full_enough


async def test_what_was_delivered_before_is_not_taken_again() -> None:
    inbox = Inbox()
    for offset in (3, 4, 3, 4, 7, 5, 8):
        inbox.deliver(record(offset))
    waiting = asyncio.wait_for(inbox.get(), 1)
    found = [(await waiting).lsn.offset]
    while not inbox.empty():
        found.append(inbox.get_nowait().lsn.offset)
    assert found == [3, 4, 7, 8]
    assert inbox.newest == 8
