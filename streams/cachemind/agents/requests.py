"""The process that answers commands: a Faust agent in a group of all its like.

The agent only carries records; each partition has a handler with a thread of its own,
so that one whose fold is busy with a rollback holds up no other. What the group is
told of progress is committed with the answers, never by Faust.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, cast

import faust
from faust.types import StreamT

from cachemind.agents.app import build_app, quiet_logs, raw_topic
from cachemind.agents.first_of import first_of
from cachemind.agents.hosted import HostedApp
from cachemind.agents.own_thread import OwnThread
from cachemind.agents.wal_agent import record_of
from cachemind.errors import CacheError, InvalidSetting
from cachemind.ports import LogRecord
from cachemind.types import Partition

log = logging.getLogger(__name__)

EXIT_DONE: Final = 0
EXIT_STOPPED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_PROGRESS: Final = 3
LEAVE_S: Final = 2.5
INBOX_RECORDS: Final = 1_000


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

    `ask_log` raises `LogUnavailable` while the log does not answer. `kafka` has
    librdkafka's names.
    """

    kafka: Mapping[str, str]
    topic: str
    group: str
    open_handler: Callable[[Partition], Handler]
    ask_log: Callable[[], object]
    stop: asyncio.Event


async def run_requests(deps: RequestsDeps) -> int:
    """Answer until `deps.stop` is set; return the exit code.

    0: stopped in order; 1: something failed that no retry helps; 2: a setting that
    Faust cannot use; 3: Faust gave up: start again.
    """
    quiet_logs()
    partitions = _Partitions(deps.open_handler)
    asking = OwnThread("log-end")
    app = HostedApp(
        lambda: requests_app(deps.kafka, deps.group, deps.topic, partitions.accept),
        deps.topic,
        lambda: asking.run(deps.ask_log),
    )
    try:
        await first_of(LEAVE_S, app.run(), partitions.failed(), _until(deps.stop))
    except InvalidSetting as error:
        log.critical("%s", error)
        return EXIT_USAGE
    except CacheError as error:
        log.critical("%s: %s", type(error).__name__, error)
        return EXIT_STOPPED
    finally:
        await partitions.close()
        asking.close()
    if deps.stop.is_set():
        return EXIT_DONE
    log.critical("the group consumer gave up")
    return EXIT_NO_PROGRESS


async def _until(stop: asyncio.Event) -> None:
    await stop.wait()


def requests_app(
    settings: Mapping[str, str],
    group: str,
    topic: str,
    accept: Callable[[LogRecord], object],
) -> faust.App:
    """Return an app whose one agent gives every command of `topic` to `accept`.

    Raises: `InvalidSetting`.
    """
    app = build_app(settings, group, commits=False)

    async def answer(stream: StreamT[bytes]) -> None:
        unacked = cast(faust.Stream[bytes], stream).noack()
        async for event in unacked.events():
            # Commits nothing here: it only lets Faust forget the record.
            event.ack()
            await accept(record_of(event))  # type: ignore[misc] # a coroutine

    app.agent(raw_topic(app, topic))(answer)
    return app


class _Partitions:
    """A handler for each partition that was ever delivered."""

    def __init__(self, open_handler: Callable[[Partition], Handler]) -> None:
        self._open = open_handler
        self._inboxes: dict[Partition, asyncio.Queue[LogRecord]] = {}
        self._handlers: dict[Partition, Handler] = {}
        self._work: set[asyncio.Task[None]] = set()
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def accept(self, record: LogRecord) -> None:
        """Queue one delivery; waits while its partition is far behind."""
        partition = record.lsn.partition
        if partition not in self._inboxes:
            inbox = self._inboxes[partition] = asyncio.Queue(INBOX_RECORDS)
            handler = self._handlers[partition] = self._open(partition)
            task = asyncio.create_task(handler.run(inbox))
            self._work.add(task)
            task.add_done_callback(self._ended)
        await self._inboxes[partition].put(record)

    async def failed(self) -> None:
        """Wait until a partition cannot go on; raise why."""
        await self._broken

    async def close(self) -> None:
        """End what is at hand, for a moment, and leave the cluster."""
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        await asyncio.gather(*(each.close() for each in self._handlers.values()))

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self._broken.done():
            return
        error = task.exception()
        if error is not None:
            self._broken.set_exception(error)
