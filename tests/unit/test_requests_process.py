"""Topics of commands come and go, and the process that answers them goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from cachemind.agents.command_partitions import Partitions
from cachemind.agents.requests import _Grants
from cachemind.errors import LogRejected, LogUnavailable
from cachemind.ports import LogRecord
from cachemind.types import Lsn, Offset, Partition

SHARED, GRANT = "requests", "requests.shop.auditor"


def record(offset: int, partition: int = 0) -> LogRecord:
    return LogRecord(
        lsn=Lsn(Partition(partition), Offset(offset)),
        key=b"k",
        value=b"v",
        headers=(),
        timestamp_ms=0,
    )


@dataclass
class Handler:
    """Takes in what comes, until it is cancelled, or breaks."""

    seen: list[int] = field(default_factory=list)
    breaks: Exception | None = None
    closed: bool = False
    idle: bool = False

    async def run(self, inbox: asyncio.Queue[LogRecord]) -> None:
        while True:
            self.seen.append((await inbox.get()).lsn.offset)
            if self.breaks is not None:
                raise self.breaks

    async def close(self) -> None:
        self.closed = True


@dataclass
class World:
    """The handlers that were opened, in order."""

    opened: list[tuple[str, int, Handler]] = field(default_factory=list)
    breaks: Exception | None = None

    def open(self, topic: str, partition: Partition) -> Handler:
        handler = Handler(breaks=self.breaks)
        self.opened.append((topic, partition, handler))
        return handler


async def until(handler: Handler, count: int) -> None:
    async with asyncio.timeout(5):
        while len(handler.seen) < count:
            await asyncio.sleep(0)


async def test_each_topic_and_partition_has_a_handler_of_its_own() -> None:
    world = World()
    partitions = Partitions(world.open, SHARED)
    await partitions.serve({GRANT: "1"})
    delivered = [(SHARED, 7, 0), (GRANT, 7, 0), (SHARED, 7, 1), (GRANT, 8, 0)]
    for topic, at, number in delivered:
        await partitions.accept(topic, record(at, number))
    assert [(t, p) for t, p, _ in world.opened] == [
        (SHARED, 0),
        (GRANT, 0),
        (SHARED, 1),
    ]
    await until(world.opened[1][2], 2)
    await partitions.close()
    assert all(handler.closed for _, _, handler in world.opened)


@pytest.mark.parametrize(
    "later", [pytest.param({}, id="gone"), pytest.param({GRANT: "2"}, id="made-anew")]
)
async def test_a_topic_that_went_is_left_and_one_made_anew_begins_anew(
    later: Mapping[str, str],
) -> None:
    world = World()
    partitions = Partitions(world.open, SHARED)
    await partitions.serve({GRANT: "1"})
    await partitions.accept(SHARED, record(0))
    await partitions.accept(GRANT, record(0))
    await partitions.serve(later)
    (_, _, shared), (_, _, granted) = world.opened
    assert (shared.closed, granted.closed) == (False, True)
    # What the consumer had in hand is of a topic that is not answered any more.
    await partitions.accept(GRANT, record(0))
    assert len(world.opened) == 2 + len(later)
    await partitions.close()


async def test_what_no_retry_helps_ends_the_process_and_a_topic_left_does_not() -> None:
    world = World(breaks=RuntimeError("broken"))
    partitions = Partitions(world.open, SHARED)
    failed = asyncio.ensure_future(partitions.failed())
    await partitions.serve({GRANT: "1"})
    await partitions.serve({})
    await asyncio.sleep(0)
    assert not failed.done()
    await partitions.accept(SHARED, record(0))
    with pytest.raises(RuntimeError, match="broken"):
        await failed
    await partitions.close()


async def test_other_topics_are_noticed_and_a_log_that_is_away_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers: list[Mapping[str, str] | Exception] = [
        {GRANT: "1"},
        LogUnavailable("away"),
        LogUnavailable("away"),
        {GRANT: "1"},
        LogRejected("not allowed"),
        {GRANT: "2"},
    ]

    async def find() -> Mapping[str, str]:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    grants = _Grants(find, find_s=0)
    await grants.look()
    assert grants.found == {GRANT: "1"}
    await grants.changed()
    assert (grants.found, answers) == ({GRANT: "2"}, [])
    told = [one.getMessage() for one in caplog.records]
    assert len(told) == 2  # each problem once
    assert "not allowed" in told[1]
