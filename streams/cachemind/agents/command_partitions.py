"""The partitions of commands that are delivered to a process, each with a handler."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from cachemind.agents.inbox import Inbox
from cachemind.ports import LogRecord
from cachemind.types import Offset, Partition

log = logging.getLogger(__name__)

TICK_S: Final = 0.05
"""Between two looks whether a full inbox has room again."""

MOST_OPEN: Final = 64
"""Handlers that are kept though they have nothing to do: each has some twenty threads
and thirty files open."""


class Handler(Protocol):
    """Answers one partition's commands; see `Batching`."""

    async def run(self, inbox: asyncio.Queue[LogRecord]) -> None:
        """Answer what comes in until cancelled. Raises: what no retry helps."""
        ...

    @property
    def idle(self) -> bool:
        """Return whether all that it took is answered."""
        ...

    async def close(self) -> None:
        """End what is at hand, for a moment, and leave the cluster."""
        ...


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

    @property
    def idle(self) -> bool:
        """Return whether nothing is lost by ending it."""
        return self.inbox.empty() and self.handler.idle

    async def end(self) -> None:
        """End what is at hand, for a moment, and leave the cluster."""
        self.work.cancel()
        await asyncio.gather(self.work, return_exceptions=True)
        await self.handler.close()


class Partitions:
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
        held = self._held.pop(place, None) or self._begun(*place)
        # The last one is the one that was used last.
        self._held[place] = held
        held.inbox.deliver(record)
        if held.inbox.full_enough and self.deliveries is not None:
            # Each time: one that is taken over begins to be delivered again.
            held.held_back = True
            self.deliveries.hold_back(record.lsn.partition, topic)

    async def take_up_again(self) -> None:
        """Have what was held back delivered once there is room, until cancelled.

        And end those that were not used for longest, where they are many.
        """
        while True:
            await self.end_idle()
            for (topic, partition), held in list(self._held.items()):
                if held.held_back and held.inbox.has_room:
                    held.held_back = not await self._goes_on(topic, partition, held)
            await asyncio.sleep(TICK_S)

    async def end_idle(self) -> None:
        """End those of the idle ones that are too many."""
        many = max(len(self._held) - MOST_OPEN, 0)
        idle = [place for place, held in self._held.items() if held.idle]
        ended = [self._held.pop(place) for place in idle[:many]]
        await asyncio.gather(*(held.end() for held in ended))

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
