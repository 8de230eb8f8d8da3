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
from typing import Final, Protocol, cast

import faust
from faust.types import StreamT

from cachemind.agents.app import build_app, quiet_logs, raw_topic
from cachemind.agents.first_of import first_of
from cachemind.agents.hosted import HostedApp
from cachemind.agents.inbox import Inbox
from cachemind.agents.own_thread import OwnThread
from cachemind.agents.wal_agent import record_of
from cachemind.errors import CacheError, InvalidSetting, LogError
from cachemind.ports import LogRecord
from cachemind.types import Offset, Partition

log = logging.getLogger(__name__)

EXIT_DONE: Final = 0
EXIT_STOPPED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_PROGRESS: Final = 3
LEAVE_S: Final = 2.5
FIND_S: Final = 3.0
"""Between two looks for topics of grants."""

TICK_S: Final = 0.05
"""Between two looks whether a full inbox has room again."""


class Handler(Protocol):
    """Answers one partition's commands; see `Batching`."""

    async def run(self, inbox: asyncio.Queue[LogRecord]) -> None:
        """Answer what comes in until cancelled. Raises: what no retry helps."""
        ...

    async def close(self) -> None:
        """End what is at hand, for a moment, and leave the cluster."""
        ...


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
    partitions = _Partitions(deps.open_handler, deps.topic)
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
    deps: RequestsDeps, partitions: _Partitions, grants: _Grants, asking: OwnThread
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


class Deliveries(Protocol):
    """Who delivers; see `HostedApp`."""

    def hold_back(self, partition: Partition, topic: str | None = None) -> None:
        """Have nothing of a partition delivered; a hint."""
        ...

    async def go_on_just_at(
        self, topic: str, partition: Partition, offset: Offset
    ) -> bool:
        """Have it delivered from `offset` on; False: try again later."""
        ...


@dataclass(slots=True)
class _Held:
    """A partition that was delivered, and the work on it.

    `held_back` while nothing more of it is to be delivered.
    """

    handler: Handler
    inbox: Inbox
    work: asyncio.Task[None]
    held_back: bool = False

    async def end(self) -> None:
        """End what is at hand, for a moment, and leave the cluster."""
        self.work.cancel()
        await asyncio.gather(self.work, return_exceptions=True)
        await self.handler.close()


class _Partitions:
    """A handler for each partition that was delivered, of topics that there are."""

    def __init__(
        self, open_handler: Callable[[str, Partition], Handler], always: str
    ) -> None:
        self._open = open_handler
        self._always = always
        self._grants: Mapping[str, str] = {}
        self._held: dict[tuple[str, Partition], _Held] = {}
        self.deliveries: Deliveries | None = None
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def serve(self, grants: Mapping[str, str]) -> None:
        """Take on the topics of `grants`, and leave those that are none any more.

        One that was made anew has another id, and its offsets begin anew.
        """
        gone = {name for name, id_ in self._grants.items() if grants.get(name) != id_}
        self._grants = grants
        left = [place for place in self._held if place[0] in gone]
        for name in sorted(gone):
            log.info("commands on %s are answered no more", name)
        await asyncio.gather(*(self._held.pop(place).end() for place in left))

    async def accept(self, topic: str, record: LogRecord) -> None:
        """Queue one delivery; a partition that is far behind is held back."""
        if topic != self._always and topic not in self._grants:
            return
        place = topic, record.lsn.partition
        if place not in self._held:
            self._held[place] = self._begun(*place)
        held = self._held[place]
        held.inbox.deliver(record)
        if held.inbox.full_enough and self.deliveries is not None:
            # Each time: one that is taken over begins to be delivered again.
            held.held_back = True
            self.deliveries.hold_back(record.lsn.partition, topic)

    async def take_up_again(self) -> None:
        """Have what was held back delivered once there is room, until cancelled."""
        while True:
            for (topic, partition), held in list(self._held.items()):
                if held.held_back and held.inbox.has_room:
                    held.held_back = not await self._goes_on(topic, partition, held)
            await asyncio.sleep(TICK_S)

    async def _goes_on(self, topic: str, partition: Partition, held: _Held) -> bool:
        assert self.deliveries is not None  # noqa: S101 - it held something back
        after = Offset(held.inbox.newest + 1)
        return await self.deliveries.go_on_just_at(topic, partition, after)

    async def failed(self) -> None:
        """Wait until a partition cannot go on; raise why."""
        await self._broken

    async def close(self) -> None:
        """End what is at hand, for a moment, and leave the cluster."""
        await asyncio.gather(*(each.end() for each in self._held.values()))

    def _begun(self, topic: str, partition: Partition) -> _Held:
        handler = self._open(topic, partition)
        inbox = Inbox()
        work = asyncio.create_task(handler.run(inbox))
        work.add_done_callback(self._ended)
        return _Held(handler, inbox, work)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self._broken.done():
            return
        error = task.exception()
        if error is not None:
            self._broken.set_exception(error)
