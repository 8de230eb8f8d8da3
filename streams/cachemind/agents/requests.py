"""The process that answers commands: a Faust agent in a group of all its like.

The agent only carries records; each partition has a handler with a thread of its own,
so that one whose fold is busy with a rollback holds up no other. What the group is
told of progress is committed with the answers, never by Faust.

Topics come and go with the grants. Faust takes its topics when an app starts and
honours no pattern, so where they have changed the app is ended and another one joins;
the handlers go on meanwhile, and what is delivered to them again they pass over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

import faust
from faust.types import StreamT

from cachemind.agents.app import build_app, quiet_logs, raw_topic
from cachemind.agents.command_partitions import Handler, Partitions
from cachemind.agents.first_of import first_of
from cachemind.agents.hosted import HostedApp
from cachemind.agents.own_thread import OwnThread
from cachemind.agents.wal_agent import record_of
from cachemind.errors import CacheError, InvalidSetting, LogError
from cachemind.ports import LogRecord
from cachemind.types import Partition

log = logging.getLogger(__name__)

EXIT_DONE: Final = 0
EXIT_STOPPED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_PROGRESS: Final = 3
LEAVE_S: Final = 2.5
FIND_S: Final = 3.0
"""Between two looks for topics of grants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestsDeps:
    """What the process stands on.

    `topic` is always answered, and what `find_grants` finds: topics of commands by
    their names, each with its id. It raises `LogError`; so does `ask_log` while the log
    does not answer. `kafka` has librdkafka's names.
    """

    kafka: Mapping[str, str]
    topic: str
    group: str
    open_handler: Callable[[str, Partition], Handler]
    find_grants: Callable[[], Mapping[str, str]]
    ask_log: Callable[[], object]
    stop: asyncio.Event
    find_s: float = FIND_S


async def run_requests(deps: RequestsDeps) -> int:
    """Answer until `deps.stop` is set; return the exit code.

    0: stopped in order; 1: something failed that no retry helps; 2: a setting that
    Faust cannot use; 3: Faust gave up: start again.
    """
    quiet_logs()
    partitions = Partitions(deps.open_handler, deps.topic)
    asking, finding = OwnThread("log-end"), OwnThread("grants")
    grants = _Grants(lambda: finding.run(deps.find_grants), deps.find_s)
    carrying = _carry(deps, partitions, grants, asking)
    try:
        await first_of(LEAVE_S, carrying, partitions.failed(), _until(deps.stop))
    except InvalidSetting as error:
        log.critical("%s", error)
        return EXIT_USAGE
    except CacheError as error:
        log.critical("%s: %s", type(error).__name__, error)
        return EXIT_STOPPED
    finally:
        await partitions.close()
        asking.close()
        finding.close()
    if deps.stop.is_set():
        return EXIT_DONE
    log.critical("the group consumer gave up")
    return EXIT_NO_PROGRESS


async def _carry(
    deps: RequestsDeps, partitions: Partitions, grants: _Grants, asking: OwnThread
) -> None:
    """Have the commands of all topics delivered; return once Faust gives up."""
    await grants.look()
    while True:
        await partitions.serve(grants.found)
        topics = (deps.topic, *sorted(grants.found))
        app = HostedApp(
            partial(requests_app, deps.kafka, deps.group, topics, partitions.accept),
            deps.topic,
            lambda: asking.run(deps.ask_log),
        )
        partitions.deliveries = app
        before = grants.found
        await first_of(LEAVE_S, app.run(), grants.changed(), partitions.take_up_again())
        if grants.found == before:
            return


class _Grants:
    """The topics of grants that there are, as far as is known."""

    def __init__(
        self, find: Callable[[], Awaitable[Mapping[str, str]]], find_s: float
    ) -> None:
        self._find = find
        self._find_s = find_s
        self._problem = ""
        self.found: Mapping[str, str] = {}

    async def look(self) -> None:
        """Look once; where the log does not answer, what was known is so still."""
        try:
            self.found, problem = await self._find(), ""
        except LogError as error:
            problem = str(error)
        if problem and problem != self._problem:
            log.warning("whether there are other grants is not known: %s", problem)
        self._problem = problem

    async def changed(self) -> None:
        """Return once there are others."""
        before = self.found
        while self.found == before:
            await asyncio.sleep(self._find_s)
            await self.look()


async def _until(stop: asyncio.Event) -> None:
    await stop.wait()


def requests_app(
    settings: Mapping[str, str],
    group: str,
    topics: Sequence[str],
    accept: Callable[[str, LogRecord], Awaitable[None]],
) -> faust.App:
    """Return an app whose one agent gives every command of `topics` to `accept`.

    Raises: `InvalidSetting`.
    """
    app = build_app(settings, group, commits=False)

    async def answer(stream: StreamT[bytes]) -> None:
        unacked = cast(faust.Stream[bytes], stream).noack()
        async for event in unacked.events():
            # Commits nothing here: it only lets Faust forget the record.
            event.ack()
            await accept(event.message.topic, record_of(event))

    app.agent(raw_topic(app, *topics))(answer)
    return app
