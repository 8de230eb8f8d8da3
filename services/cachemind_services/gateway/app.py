"""The gateway as an ASGI application."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from cachemind_services.gateway.admin import PREFIX
from cachemind_services.gateway.deps import GatewayDeps
from cachemind_services.gateway.http_io import (
    Receive,
    Scope,
    Send,
    send_error,
    send_json,
    send_whole,
)
from cachemind_services.gateway.metrics import CONTENT_TYPE
from cachemind_services.gateway.parts import Parts
from cachemind_services.gateway.receipts_api import RECEIPTS_PREFIX
from cachemind_services.gateway.rollback_api import (
    ROLLBACK_PATH,
    ROLLBACKS_PREFIX,
    is_of_past,
)
from cachemind_services.gateway.spaces import Spaces
from cachemind_services.gateway.versions_api import (
    DIFF_PATH,
    VERSIONS_PATH,
    answered,
)

CHAT_PATH: Final = "/v1/chat/completions"
_LOG: Final = logging.getLogger("cachemind.gateway")


class Gateway:
    """One worker: serves under any ASGI server that runs the lifespan protocol."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        self._spaces: Spaces | None = None
        self._parts: Parts | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or follow the server's life."""
        kind = scope["type"]
        if kind == "http":
            await self._http(scope, receive, send)
        elif kind == "lifespan":
            await self._lifespan(receive, send)
        else:
            await _no_websocket(scope, receive, send)

    async def startup(self) -> None:
        """Begin following the store; answers requests from now on."""
        self._spaces = Spaces(self._deps)
        self._parts = await self._spaces.start()

    def draining(self) -> None:
        """Hold no request back any longer; `shutdown` is to follow."""
        if self._spaces is not None:
            self._spaces.send_away()

    async def shutdown(self) -> None:
        """Let what is in flight end, flush the log, close every port.

        The server has stopped accepting by now.
        """
        spaces, self._spaces, self._parts = self._spaces, None, None
        if spaces is not None:
            await spaces.close()
        self._deps.metrics.settle()

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts = self._parts
        if parts is None:
            await send_error(send, 503, "the gateway is not running")
            return
        path: str = scope["path"]
        if path == CHAT_PATH and scope["method"] == "POST":
            await parts.chat.handle(scope, receive, send)
        elif path.startswith(PREFIX):
            await parts.admin.handle(scope, receive, send)
        elif path.startswith(RECEIPTS_PREFIX):
            await self._receipts(parts, scope, send)
        elif is_of_past(path):
            await self._past(parts, path, scope, send)
        elif path in ("/healthz", "/readyz", "/metrics"):
            await self._operate(parts, path, send)
        elif _upgrades(scope):
            await send_error(send, 501, "protocol upgrades are not supported")
        else:
            self._deps.metrics.proxied.inc()
            logs = self._deps.settings.log_passed_on
            handler = parts.chat.pass_on if logs else parts.proxy.handle
            await handler(scope, receive, send)

    async def _receipts(self, parts: Parts, scope: Scope, send: Send) -> None:
        if scope["method"] != "GET":
            await _not_allowed(send, b"GET")
            return
        await answered(send, lambda: parts.receipts_api.receipts(scope, send))

    async def _past(self, parts: Parts, path: str, scope: Scope, send: Send) -> None:
        call = (scope["method"], path)
        if call == ("GET", VERSIONS_PATH):
            await answered(send, lambda: parts.versions.versions(scope, send))
        elif call == ("GET", DIFF_PATH):
            await answered(send, lambda: parts.versions.diff(scope, send))
        elif call == ("POST", ROLLBACK_PATH):
            trace = parts.trace(scope).trace_id
            await answered(send, lambda: parts.rollbacks.rollback(scope, send, trace))
        elif call[0] == "GET" and path.startswith(ROLLBACKS_PREFIX):
            rollback = path.removeprefix(ROLLBACKS_PREFIX)
            await answered(send, lambda: parts.rollbacks.status(rollback, send))
        else:
            await _not_allowed(send, b"POST" if path == ROLLBACK_PATH else b"GET")

    async def _operate(self, parts: Parts, path: str, send: Send) -> None:
        if path == "/healthz":
            await send_json(send, 200, {"status": "ok"})
        elif path == "/readyz":
            reasons = parts.not_ready()
            status = "not ready" if reasons else "ready"
            warnings = parts.warnings()
            answer = {"status": status, "reasons": reasons, "warnings": warnings}
            await send_json(send, 503 if reasons else 200, answer)
        else:
            self._deps.metrics.settle()
            text = await asyncio.to_thread(self._deps.metrics.render)
            kind = (b"content-type", CONTENT_TYPE.encode())
            await send_whole(send, 200, [kind], text)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self.startup()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.shutdown()
                await send({"type": "lifespan.shutdown.complete"})
                return


async def _not_allowed(send: Send, allowed: bytes) -> None:
    headers = ((b"allow", allowed),)
    await send_error(send, 405, "the method is not allowed", headers=headers)


def _upgrades(scope: Scope) -> bool:
    return any(name == b"upgrade" for name, _ in scope["headers"])


async def _no_websocket(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a WebSocket handshake with 501 where the server can say so."""
    await receive()
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    body = b'{"error":{"message":"WebSockets are not supported","code":null}}'
    headers = [(b"content-type", b"application/json")]
    await send(
        {"type": "websocket.http.response.start", "status": 501, "headers": headers}
    )
    await send({"type": "websocket.http.response.body", "body": body})
