"""Events that somebody may ask for twice, told by the id of the request.

The id of such an event is a UUIDv8: 90 bits of a hash of who asked under which id, 32
bits of a hash of what was asked for. The first event of a request takes effect, as the
log has them; any other is found to be done, whatever it holds, as long as the request
is among the newest of its namespace: of the present generation or the one before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from cachemind.core.tagged_hash import tagged_hash
from cachemind.types import EventId, Offset, Principal

REQUEST_BYTES: Final = 12
"""Of an event's id: what tells one request from another."""

GENERATION: Final = 250_000
"""Requests; so many of the newest are remembered at least, twice as many at most."""

_VERSION_BYTE: Final = 6
_VERSION: Final = 0x80
_VARIANT_BYTE: Final = 8
_ID: Final = b"cachemind/request/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The first event of a request, and where it is on its partition.

    `snapshot_id` and `ttl_ms` are a `Stored`'s, else empty and 0.
    """

    event_id: EventId
    offset: Offset
    snapshot_id: str = ""
    ttl_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The present generation of a namespace's requests, and how many are in it."""

    generation: int = 0
    count: int = 0

    @property
    def first(self) -> int:
        """Return the oldest generation that is remembered."""
        return max(self.generation - 1, 0)

    def next(self) -> Head:
        """Return what it is after one more request."""
        if self.count < GENERATION:
            return Head(generation=self.generation, count=self.count + 1)
        return Head(generation=self.generation + 1, count=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """A request that has just been done, and the head that it is in."""

    request: Request
    head: Head


class Requests(Protocol):
    """The requests of one namespace that are done."""

    def head(self) -> Head:
        """Return the present generation."""
        ...

    def request(self, event_id: EventId, head: Head) -> Request | None:
        """Return the first event of the request that `event_id` is of.

        None where it is in none of the generations that are remembered as of `head`.
        """
        ...


class NoRequests:
    """`Requests` for who folds no event of a request."""

    def head(self) -> Head:
        """Return that of none."""
        return Head()

    def request(self, event_id: EventId, head: Head) -> Request | None:
        """Return None."""
        del event_id, head
        return None


NO_REQUESTS: Final = NoRequests()


def requested_id(principal: Principal, request: bytes, content: bytes) -> EventId:
    """Return the id of the event that `principal` asks for as `request`.

    Source: RFC 9562 section 5.8.
    """
    who = tagged_hash(_ID, principal.encode(), request)[:REQUEST_BYTES]
    made = bytearray(who + tagged_hash(_ID, content)[:4])
    made[_VERSION_BYTE] = _VERSION | made[_VERSION_BYTE] & 0x0F
    made[_VARIANT_BYTE] = 0x80 | made[_VARIANT_BYTE] & 0x3F
    return EventId(bytes(made))


def is_requested(event_id: EventId) -> bool:
    """Return whether an event's id is a request's."""
    return event_id[_VERSION_BYTE] & 0xF0 == _VERSION


def request_of(event_id: EventId) -> bytes:
    """Return what all events of one request have in common."""
    return event_id[:REQUEST_BYTES]
