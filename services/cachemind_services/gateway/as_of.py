"""A gateway over a past state: it answers hits as of then and changes nothing.

A miss is answered as if the client had said `only-if-cached` (504, RFC 9111 section
5.2.1.7). Every answer says `X-CacheMind-As-Of`, so that nobody takes it for the live
cache.
"""

from __future__ import annotations

from typing import Final, Protocol

from cachemind_services.gateway.http_io import (
    Header,
    Message,
    Receive,
    Scope,
    Send,
    send_error,
)

CHAT_PATH: Final = "/v1/chat/completions"
AS_OF: Final = b"x-cachemind-as-of"
_ONLY_IF_CACHED: Final[Header] = (b"cache-control", b"only-if-cached")
_LSN: Final = b"x-cachemind-lsn"
"""Of a look-up's record on the log, and here there is none."""

_READABLE: Final = ("/v1/cachemind/", "/healthz", "/readyz", "/metrics")


class Application(Protocol):
    """An ASGI application."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or follow the server's life."""
        ...


class AsOfGateway:
    """Wraps the gateway of a replay, whose ports lead nowhere."""

    def __init__(self, inner: Application, as_of: str) -> None:
        self._inner = inner
        self._mark: Header = (AS_OF, as_of.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or follow the server's life."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        marked = self._marked(send)
        if (scope["method"], scope["path"]) == ("POST", CHAT_PATH):
            headers = [*scope["headers"], _ONLY_IF_CACHED]
            await self._inner({**scope, "headers": headers}, receive, marked)
        elif scope["method"] == "GET" and scope["path"].startswith(_READABLE):
            await self._inner(scope, receive, marked)
        else:
            message = "this gateway shows the past: it looks up and changes nothing"
            await send_error(marked, 405, message, code="read_only")

    def _marked(self, send: Send) -> Send:
        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [pair for pair in message["headers"] if pair[0] != _LSN]
                message = {**message, "headers": [*kept, self._mark]}
            await send(message)

        return marked
