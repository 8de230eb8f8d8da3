"""A group consumer that is told nothing by its group, on an app that is none."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import cast

import faust
import pytest

from cachemind.agents.hosted import HostedApp
from cachemind.errors import LogUnavailable, StepStuck

TICK_S = 0.005
PATIENCE_S = 0.05


@dataclass
class Member:
    """What `HostedApp` looks at in an app."""

    started: bool = True
    rebalancing: bool = False


class Log:
    """A log that answers, or not; `asked` counts."""

    def __init__(self, *, away: bool = False) -> None:
        self.away = away
        self.asked = 0

    async def bounds(self) -> None:
        self.asked += 1
        if self.away:
            raise LogUnavailable("away")


async def watched(member: Member, log: Log, enough: asyncio.Event) -> None:
    """Watch until that raises, or it was `enough`."""
    app = HostedApp(lambda: cast(faust.App, member), "wal", log.bounds)
    watch = asyncio.create_task(app.watch(PATIENCE_S, TICK_S))
    waiting = asyncio.create_task(enough.wait())
    try:
        await asyncio.wait({watch, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if watch.done():
            watch.result()
    finally:
        watch.cancel()
        waiting.cancel()


@pytest.mark.parametrize(
    "member", [Member(started=False), Member(rebalancing=True)], ids=str
)
def test_a_group_that_says_nothing_though_the_log_answers_is_given_up(
    member: Member,
) -> None:
    async def run() -> None:
        with pytest.raises(StepStuck, match="joining the group"):
            await asyncio.wait_for(watched(member, Log(), asyncio.Event()), 30)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("member", "log"),
    [
        pytest.param(Member(), Log(), id="it-has-said"),
        pytest.param(Member(started=False), Log(away=True), id="the-log-is-away"),
    ],
)
def test_a_group_is_waited_for_while_there_is_reason(member: Member, log: Log) -> None:
    async def run() -> None:
        enough = asyncio.Event()
        asyncio.get_running_loop().call_later(4 * PATIENCE_S, enough.set)
        await watched(member, log, enough)

    asyncio.run(run())
