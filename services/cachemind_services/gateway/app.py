"""The gateway as an ASGI application."""

from __future__ import annotations

from typing import Final

from cachemind.core.access import NAMESPACE_HEADER
from cachemind.types import Namespace
from cachemind_services.gateway.deps import GatewayDeps
from cachemind_services.gateway.guard import Guard
from cachemind_services.gateway.http_io import Receive, Scope, Send, send_error
from cachemind_services.gateway.parts import Parts
from cachemind_services.gateway.routes import Routes
from cachemind_services.gateway.shared import Shared
from cachemind_services.gateway.spaces import Spaces

_NAMESPACE: Final = NAMESPACE_HEADER.lower().encode()


class Gateway:
    """One worker: serves under any ASGI server that runs the lifespan protocol."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        self._shared: Shared | None = None
        self._spaces: Spaces | None = None
        self._guard: Guard | None = None
        self._routes: Routes | None = None
        self._only: Parts | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or follow the server's life."""
        kind = scope["type"]
        if kind == "http":
            routes, only = self._routes, self._only
            if routes is not None and only is not None:
                if _is_meant(only.namespace, scope):
                    await routes.handle(only, scope, receive, send)
                else:
                    await _send_elsewhere(only.namespace, send)
            elif self._guard is not None:
                await self._guard.handle(scope, receive, send)
            else:
                await send_error(send, 503, "the gateway is not running")
        elif kind == "lifespan":
            await self._lifespan(receive, send)
        else:
            await _no_websocket(scope, receive, send)

    async def startup(self) -> None:
        """Begin following the store; answers requests from now on.

        Without authentication there is one namespace, the settings' own.
        """
        deps = self._deps
        self._shared = shared = Shared(deps)
        self._spaces = spaces = Spaces(shared, deps)
        routes = Routes(deps, spaces)
        if deps.access is None:
            only = await spaces.open(deps.settings.namespace)
            only.users += 1  # for good
            self._routes, self._only = routes, only
        else:
            guard = Guard(shared, spaces, deps.access, routes)
            await guard.start()
            self._guard = guard
        shared.start()

    def draining(self) -> None:
        """Hold no request back any longer; `shutdown` is to follow."""
        if self._shared is not None and self._shared.receipts is not None:
            self._shared.receipts.send_away()

    async def shutdown(self) -> None:
        """Let what is in flight end, flush the log, close every port.

        The server has stopped accepting by now.
        """
        spaces, guard = self._spaces, self._guard
        self._spaces = self._guard = self._routes = self._only = self._shared = None
        if guard is not None:
            await guard.stop()
        if spaces is not None:
            await spaces.close()
        self._deps.metrics.settle()

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


def _is_meant(namespace: Namespace, scope: Scope) -> bool:
    """Return whether no other namespace than the one there is is asked for."""
    for name, value in scope["headers"]:
        if name == _NAMESPACE and value != namespace.encode():
            return False
    return True


async def _send_elsewhere(namespace: Namespace, send: Send) -> None:
    """Say that another namespace is not here, rather than answer from this one."""
    message = f"without authentication there is the namespace {namespace} alone"
    await send_error(send, 403, message, param="namespace", code="forbidden")


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
