"""Which part of a namespace answers a request, by method and path."""

from __future__ import annotations

import asyncio
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
HEALTH_PATH: Final = "/healthz"
READY_PATH: Final = "/readyz"
METRICS_PATH: Final = "/metrics"
_OF_THE_WORKER: Final = (HEALTH_PATH, READY_PATH, METRICS_PATH)


class Routes:
    """Hands requests on; who may ask was decided before."""

    def __init__(self, deps: GatewayDeps, spaces: Spaces) -> None:
        self._deps = deps
        self._spaces = spaces

    async def handle(
        self, parts: Parts, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer one request in the namespace of `parts`."""
        path: str = scope["path"]
        if path == CHAT_PATH and scope["method"] == "POST":
            await parts.chat.handle(scope, receive, send)
        elif path.startswith(PREFIX):
            await parts.admin.handle(scope, receive, send)
        elif path.startswith(RECEIPTS_PREFIX):
            await _receipts(parts, scope, send)
        elif is_of_past(path):
            await _past(parts, path, scope, send)
        elif path in _OF_THE_WORKER:
            await self.operate(path, send)
        elif _upgrades(scope):
            await send_error(send, 501, "protocol upgrades are not supported")
        else:
            self._deps.metrics.proxied.inc()
            logs = self._deps.settings.log_passed_on
            handler = parts.chat.pass_on if logs else parts.proxy.handle
            await handler(scope, receive, send)

    async def operate(self, path: str, send: Send) -> None:
        """Answer what is asked of the worker, not of a namespace."""
        if path == HEALTH_PATH:
            await send_json(send, 200, {"status": "ok"})
        elif path == READY_PATH:
            await self._ready(send)
        else:
            self._deps.metrics.settle()
            text = await asyncio.to_thread(self._deps.metrics.render)
            kind = (b"content-type", CONTENT_TYPE.encode())
            await send_whole(send, 200, [kind], text)

    async def _ready(self, send: Send) -> None:
        reasons = self._spaces.not_ready()
        status = "not ready" if reasons else "ready"
        warnings = self._spaces.warnings()
        answer = {"status": status, "reasons": reasons, "warnings": warnings}
        await send_json(send, 503 if reasons else 200, answer)


async def _receipts(parts: Parts, scope: Scope, send: Send) -> None:
    if scope["method"] != "GET":
        await not_allowed(send, b"GET")
        return
    await answered(send, lambda: parts.receipts_api.receipts(scope, send))


async def _past(parts: Parts, path: str, scope: Scope, send: Send) -> None:
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
        await not_allowed(send, b"POST" if path == ROLLBACK_PATH else b"GET")


async def not_allowed(send: Send, allowed: bytes) -> None:
    """Answer 405 with the method that is."""
    headers = ((b"allow", allowed),)
    await send_error(send, 405, "the method is not allowed", headers=headers)


def _upgrades(scope: Scope) -> bool:
    return any(name == b"upgrade" for name, _ in scope["headers"])
