"""Upstream's answers, asked for before they are used."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from cachemind.errors import CacheError, UpstreamUnavailable
from cachemind.ports import Upstream, UpstreamRequest, UpstreamResponse

_BAD_GATEWAY: Final = 502


@dataclass(frozen=True, slots=True)
class Said:
    """A whole answer; an `UpstreamResponse` that may be read more than once."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body."""
        yield self.body


@dataclass(slots=True)
class Held:
    """What one command may hear of upstream; `missed` where it asked in vain."""

    said: Said | CacheError | None = None
    missed: bool = False


_CURRENT: ContextVar[Held | None] = ContextVar("held", default=None)


def hear_only(held: Held) -> None:
    """Have what runs in this context, and what it starts, hear `held` alone."""
    _CURRENT.set(held)


class HeldUpstream:
    """An `Upstream` that asks nobody: a transaction is open while it is used."""

    @asynccontextmanager
    async def send(self, request: UpstreamRequest) -> AsyncIterator[UpstreamResponse]:
        """Yield what was said before. Raises: what the question for it has raised."""
        del request
        held = _CURRENT.get()
        if held is None or held.said is None:
            if held is not None:
                held.missed = True
            raise UpstreamUnavailable("nobody has asked upstream yet", status=503)
        if isinstance(held.said, CacheError):
            raise held.said
        yield held.said

    async def close(self) -> None:
        """Do nothing: there are no connections."""


async def ask(
    upstream: Upstream, request: UpstreamRequest, limit_bytes: int
) -> Said | CacheError:
    """Return upstream's whole answer, or why there is none."""
    body = bytearray()
    try:
        async with upstream.send(request) as answer:
            async for chunk in answer.chunks():
                body += chunk
                if len(body) > limit_bytes:
                    problem = f"the answer is larger than {limit_bytes} bytes"
                    return UpstreamUnavailable(problem, status=_BAD_GATEWAY)
            return Said(answer.status, tuple(answer.headers), bytes(body))
    except CacheError as error:
        return error
