"""Handlers of partitions of commands: so many, and none of them ended at its work."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from cachemind.agents.command_partitions import MOST_OPEN, Partitions
from cachemind.ports import LogRecord
from cachemind.types import Lsn, Offset, Partition

P = Partition(0)
SHARED = "requests"


def record(offset: int) -> LogRecord:
    lsn = Lsn(P, Offset(offset))
    return LogRecord(lsn=lsn, key=b"k", value=b"v", headers=(), timestamp_ms=0)


@dataclass
class Hand:
    """Takes what comes; at rest where it is `idle`."""

    idle: bool = True
    ended: bool = False
    taken: list[int] = field(default_factory=list)

    async def run(self, inbox: asyncio.Queue[LogRecord]) -> None:
        while True:
            self.taken.append((await inbox.get()).lsn.offset)

    async def close(self) -> None:
        self.ended = True


async def taken(hand: Hand, offset: int) -> None:
    """Return once a hand has taken that record."""
    async with asyncio.timeout(5):
        while offset not in hand.taken:
            await asyncio.sleep(0)


async def test_who_was_not_used_for_longest_ends_where_they_are_many() -> None:
    hands: dict[str, list[Hand]] = {}

    def opened(topic: str, _: Partition) -> Hand:
        hands.setdefault(topic, []).append(Hand(idle=topic != "t1"))
        return hands[topic][-1]

    partitions = Partitions(opened, SHARED)
    names = [f"t{number}" for number in range(MOST_OPEN + 4)]
    await partitions.serve(dict.fromkeys(names, "id"))
    for name in names[:MOST_OPEN]:
        await partitions.accept(name, record(0))
        await taken(hands[name][0], 0)
    await partitions.end_idle()
    assert not any(hand.ended for (hand,) in hands.values())
    # It was the first, and is used again.
    await partitions.accept("t0", record(1))
    await taken(hands["t0"][0], 1)
    for name in names[MOST_OPEN:]:
        await partitions.accept(name, record(0))
    # One that has not yet looked into its inbox is not idle either.
    await partitions.accept("t2", record(1))
    await partitions.end_idle()
    # One is at work, or would have been among them.
    gone = [name for name, (hand,) in hands.items() if hand.ended]
    assert gone == ["t3", "t4", "t5", "t6"]
    await partitions.accept("t3", record(1))
    await taken(hands["t3"][1], 1)
    assert [hand.taken for hand in hands["t3"]] == [[0], [1]]
    await partitions.close()
    assert all(hand.ended for each in hands.values() for hand in each)
