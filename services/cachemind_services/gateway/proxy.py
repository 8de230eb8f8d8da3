"""Every path that is not ours goes to upstream untouched, streaming both ways."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Final

from cachemind.core.credentials import KEY_HEADER
from cachemind.errors import InvalidRequest, UpstreamUnavailable
from cachemind.ports import Upstream, UpstreamRequest
from cachemind_services.gateway.http_io import (
    ClientGone,
    Receive,
    Scope,
    Send,
    disconnected,
    send_error,
    send_invalid,
    target_of,
)

_LOG: Final = logging.getLogger("cachemind.gateway")


class Proxy:
    """Passes requests on and answers back, byte for byte."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request with upstream's answer."""
        body = _Body(receive)
        relay = asyncio.create_task(self._relay(scope, body, send))
        watcher = asyncio.create_task(body.hung_up())
        try:
            await asyncio.wait({relay, watcher}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            watcher.cancel()
            relay.cancel()
            await asyncio.wait({relay})
        if not relay.cancelled():
            relay.result()

    async def _relay(self, scope: Scope, body: _Body, send: Send) -> None:
        begun = False
        try:
            request = UpstreamRequest(
                method=scope["method"],
                target=target_of(scope),
                # Whoever presents a key of ours does not mean upstream by it.
                headers=[pair for pair in scope["headers"] if pair[0] != KEY_HEADER],
                body=await body.whole_or_pieces(),
            )
            async with self._upstream.send(request) as answer:
                begun = True
                await send(
                    {
                        "type": "http.response.start",
                        "status": answer.status,
                        "headers": list(answer.headers),
                    }
                )
                async for chunk in answer.chunks():
                    message = {"type": "http.response.body", "body": chunk}
                    await send({**message, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except ClientGone:
            return
        except InvalidRequest as error:
            await send_invalid(send, error)
        except UpstreamUnavailable as error:
            if begun:
                # Without the last message the server cuts the connection, as
                # upstream did.
                _LOG.warning("a proxied answer was cut short: %s", error)
                return
            await send_error(
                send, error.status, str(error), code="upstream_unavailable"
            )


class _Body:
    """A request's body as it comes, and the hang-up after it."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._read = asyncio.Event()

    async def whole_or_pieces(self) -> bytes | AsyncIterator[bytes]:
        """Return the body where it came in one piece, else its pieces.

        Raises: `ClientGone`.
        """
        first, more = await self._piece()
        return self._pieces(first) if more else first

    async def hung_up(self) -> None:
        """Return when the client closes the connection after its body."""
        await self._read.wait()
        await disconnected(self._receive)

    async def _pieces(self, first: bytes) -> AsyncIterator[bytes]:
        yield first
        more = True
        while more:
            piece, more = await self._piece()
            if piece:
                yield piece

    async def _piece(self) -> tuple[bytes, bool]:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        body: bytes = message.get("body", b"")
        more: bool = message.get("more_body", False)
        if not more:
            self._read.set()
        return body, more
