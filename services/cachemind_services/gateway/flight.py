"""One answer on its way from upstream, and everybody who listens to it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cachemind.errors import CacheError
from cachemind.types import Lsn
from cachemind_services.gateway.http_io import ClientGone, Header

LAGGARD_S: Final = 30.0
"""A listener that blocks the others this long is left behind."""


class LeftBehind(CacheError):
    """A listener read too slowly for the others to wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The beginning of an answer. `lsn` is that of its `Stored`, where known."""

    status: int
    headers: Sequence[Header]
    lsn: Lsn | None
    reason: str


class Flight:
    """Keeps an answer for its listeners, each at its own pace.

    The first `keep_bytes` are kept, so that others may still join. Past that, the
    slowest listener sets the pace, within `patience_s`, and nobody can join. Once
    `settling`, the answer is complete and is stored whether anybody waits or not.
    """

    def __init__(self, keep_bytes: int, patience_s: float = LAGGARD_S) -> None:
        self._keep_bytes = keep_bytes
        self._patience_s = patience_s
        self._pieces: deque[bytes] = deque()
        self._first = 0
        self._bytes = 0
        self._listeners: set[Listener] = set()
        self._room = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.vector: asyncio.Task[bytes | None] | None = None
        self.head: Head | None = None
        self.error: CacheError | None = None
        self.ended = False
        self.status = 0
        self.settling = False
        self.stored: Lsn | None = None
        self.upstream_s = 0.0

    @property
    def joinable(self) -> bool:
        """Return whether a newcomer would get the whole answer."""
        return not self.ended and self._first == 0

    def join(self) -> Listener:
        """Return a new listener, at the beginning of the answer."""
        listener = Listener(self)
        self._listeners.add(listener)
        return listener

    def begin(self, head: Head) -> None:
        """Let the listeners see the head."""
        self.head = head
        self._wake()

    async def publish(self, body: bytes) -> None:
        """Add bytes; wait where the slowest listener is too far behind."""
        if not body:
            return
        self._pieces.append(body)
        self._bytes += len(body)
        self._wake()
        while self._bytes > self._keep_bytes and not self._trim():
            self._room.clear()
            try:
                async with asyncio.timeout(self._patience_s):
                    await self._room.wait()
            except TimeoutError:
                self._leave_laggards()

    def end(self) -> None:
        """There is no more to come."""
        self.ended = True
        self._wake()

    def fail(self, error: CacheError) -> None:
        """The answer broke off; every listener gets `error`."""
        self.error = error
        self.end()

    def piece(self, position: int) -> bytes | None:
        """Return the piece at `position`, None where it is not there yet."""
        at = position - self._first
        return self._pieces[at] if at < len(self._pieces) else None

    def moved(self) -> None:
        """A listener read on."""
        self._room.set()

    def left(self, listener: Listener) -> None:
        """A listener went away; an answer that nobody wants is given up."""
        self._listeners.discard(listener)
        self._room.set()
        wanted = self._listeners or self.ended or self.settling
        if not wanted and self.task is not None:
            self.task.cancel()

    def _trim(self) -> bool:
        """Drop what every listener has read; return whether enough is free."""
        slowest = min((each.position for each in self._listeners), default=self._first)
        while self._first < slowest:
            self._bytes -= len(self._pieces.popleft())
            self._first += 1
        return self._bytes <= self._keep_bytes

    def _leave_laggards(self) -> None:
        slowest = min((each.position for each in self._listeners), default=0)
        for listener in [e for e in self._listeners if e.position == slowest]:
            listener.drop()
            self._listeners.discard(listener)

    def _wake(self) -> None:
        for listener in self._listeners:
            listener.woken.set()


class Listener:
    """One client's place in a flight."""

    def __init__(self, flight: Flight) -> None:
        self._flight = flight
        self._gone = False
        self._dropped = False
        self.position = 0
        self.woken = asyncio.Event()

    async def head(self) -> Head:
        """Return the answer's head.

        Raises: `ClientGone`, or the error that ended the flight before it.
        """
        while self._flight.head is None:
            if self._flight.error is not None:
                raise self._flight.error
            await self._wait()
        return self._flight.head

    async def next(self) -> bytes | None:
        """Return the next piece, None at the end.

        Raises: `ClientGone`, `LeftBehind`, or the error that cut the answer short.
        """
        while True:
            if self._dropped:
                raise LeftBehind("the client reads too slowly")
            piece = self._flight.piece(self.position)
            if piece is not None:
                self.position += 1
                self._flight.moved()
                return piece
            if self._flight.error is not None:
                raise self._flight.error
            if self._flight.ended:
                return None
            await self._wait()

    def hang_up(self) -> None:
        """The client is gone."""
        self._gone = True
        self.woken.set()

    def drop(self) -> None:
        """The others will not wait any longer."""
        self._dropped = True
        self.woken.set()

    def leave(self) -> None:
        """Stop listening."""
        self._flight.left(self)

    async def _wait(self) -> None:
        if self._gone:
            raise ClientGone
        self.woken.clear()
        await self.woken.wait()
        if self._gone:
            raise ClientGone
