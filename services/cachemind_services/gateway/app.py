"""The gateway as an ASGI application."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from cachemind.core.partitioner import partition_of
from cachemind.types import Partition
from cachemind_services.gateway.admin import PREFIX, Admin
from cachemind_services.gateway.admission import AdmissionDesk
from cachemind_services.gateway.chat import ChatHandler
from cachemind_services.gateway.deps import GatewayDeps
from cachemind_services.gateway.entries import Entries
from cachemind_services.gateway.fetcher import Fetcher
from cachemind_services.gateway.follower import Follower, Freshness
from cachemind_services.gateway.http_io import (
    Receive,
    Scope,
    Send,
    send_error,
    send_json,
    send_whole,
)
from cachemind_services.gateway.identity import Ids
from cachemind_services.gateway.look import Reader
from cachemind_services.gateway.metrics import CONTENT_TYPE
from cachemind_services.gateway.overlay import Overlay
from cachemind_services.gateway.proxy import Proxy
from cachemind_services.gateway.recovery import Recovery
from cachemind_services.gateway.rollback_api import (
    ROLLBACK_PATH,
    ROLLBACKS_PREFIX,
    RollbackApi,
    is_of_past,
)
from cachemind_services.gateway.semantic import SemanticTier, VectorIndex
from cachemind_services.gateway.standstill import Standstill
from cachemind_services.gateway.time_travel import TimeTraveller
from cachemind_services.gateway.turns import Turns
from cachemind_services.gateway.understanding import Understanding
from cachemind_services.gateway.versions_api import (
    DIFF_PATH,
    VERSIONS_PATH,
    VersionsApi,
    answered,
)
from cachemind_services.gateway.wal_session import WalSession
from cachemind_services.gateway.writes import Writes

LATE_S: Final = 5.0
"""A store that stands still so long, with records to fold, is worth a word."""

CHAT_PATH: Final = "/v1/chat/completions"
_LOG: Final = logging.getLogger("cachemind.gateway")


class Gateway:
    """One worker: serves under any ASGI server that runs the lifespan protocol."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        self._parts: _Parts | None = None

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
        self._parts = _Parts(self._deps)
        await self._parts.follower.start()
        self._parts.recovery.start()

    async def shutdown(self) -> None:
        """Let what is in flight end, flush the log, close every port.

        The server has stopped accepting by now.
        """
        parts, self._parts = self._parts, None
        if parts is not None:
            await parts.close()

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
        elif is_of_past(path):
            await self._past(parts, path, scope, send)
        elif path in ("/healthz", "/readyz", "/metrics"):
            await self._operate(parts, path, send)
        elif _upgrades(scope):
            await send_error(send, 501, "protocol upgrades are not supported")
        else:
            self._deps.metrics.proxied.inc()
            await parts.proxy.handle(scope, receive, send)

    async def _past(self, parts: _Parts, path: str, scope: Scope, send: Send) -> None:
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
            allowed = b"POST" if path == ROLLBACK_PATH else b"GET"
            headers = ((b"allow", allowed),)
            await send_error(send, 405, "the method is not allowed", headers=headers)

    async def _operate(self, parts: _Parts, path: str, send: Send) -> None:
        if path == "/healthz":
            await send_json(send, 200, {"status": "ok"})
        elif path == "/readyz":
            reasons = parts.not_ready()
            status = "not ready" if reasons else "ready"
            warnings = parts.warnings()
            answer = {"status": status, "reasons": reasons, "warnings": warnings}
            await send_json(send, 503 if reasons else 200, answer)
        else:
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


class _Parts:
    """The running pieces of one worker."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        settings = deps.settings
        namespace = settings.namespace
        partition = partition_of(namespace.encode(), len(deps.views))
        view = deps.views[partition]
        ids = Ids(deps.random)
        self.wal = WalSession(
            deps.wal, deps.codec, deps.clock, settings, deps.metrics, ids
        )
        self.overlay = Overlay(settings.overlay_bytes)
        self.semantic = _semantic_tier(deps, partition)
        self.follower = Follower(
            view, namespace, partition, deps.log_ends, self._freshened
        )
        entries = Entries(view, self.overlay, namespace, self.follower)
        self.writes = Writes(
            self.wal, self.overlay, self.follower, self.semantic, deps.metrics
        )
        desk = AdmissionDesk(deps, ids, self.semantic)
        reader = Reader(deps, entries, self.semantic)
        file = settings.turns_file
        self.turns = None if file is None else Turns(file)
        understanding = Understanding(deps, ids)
        self.chat = ChatHandler(
            deps,
            ids,
            understanding,
            self.wal,
            self.follower,
            reader,
            Fetcher(deps, ids, self.writes, desk, reader, self.turns, self.follower),
        )
        self.past = TimeTraveller(deps.past, namespace)
        self.versions = VersionsApi(self.past, Partition(partition))
        self.rollbacks = RollbackApi(
            self.past, self.follower, self.wal, ids, deps.clock
        )
        self.trace = understanding.trace
        self.admin = Admin(
            deps,
            understanding,
            entries,
            self.writes,
            desk,
            self.follower,
            self.versions,
        )
        self.proxy = Proxy(deps.upstream)
        self.standstill = Standstill()
        self.recovery = Recovery(self.wal, deps.log_ends, settings.wal_retry_s)

    def not_ready(self) -> list[str]:
        """Return why this worker should get no traffic yet; empty once it should."""
        reason = self.follower.not_ready
        return [] if reason is None else [reason]

    def warnings(self) -> list[str]:
        """Return what is wrong although requests are answered, maybe uncached.

        Not a reason to get no traffic: it would take every gateway out at once.
        """
        found = []
        if not self.wal.available:
            found.append("the log does not answer: requests go to upstream alone")
        if (still_s := self.standstill.seconds()) > LATE_S:
            found.append(
                f"the store stays at {self.follower.applied} for {still_s:.0f} s, "
                f"{self.wal.newest} is acknowledged: does the materializer run?"
            )
        return found

    async def close(self) -> None:
        """Drain, flush and close."""
        deps = self._deps
        drain_s = deps.settings.drain_s
        until = asyncio.get_running_loop().time() + drain_s
        flights = set(self.chat.tasks)
        if flights:
            _, late = await asyncio.wait(flights, timeout=drain_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self.recovery.stop()
        left_s = max(until - asyncio.get_running_loop().time(), 1.0)
        await self.wal.flush(left_s)
        await self.writes.drain()
        lost = await asyncio.to_thread(deps.wal.close, left_s)
        if lost:
            _LOG.error("%d records were not acknowledged before the end", lost)
        await self.follower.stop()
        await asyncio.to_thread(self.past.close)
        await deps.upstream.close()
        if self.semantic is not None:
            await asyncio.to_thread(self.semantic.close)
        for view in deps.views:
            view.close()
        if self.turns is not None:
            self.turns.close()

    def _freshened(self, fresh: Freshness) -> None:
        self.overlay.prune(fresh.applied)
        self.overlay.rebase(fresh.state.timeline)
        self.wal.timeline = fresh.state.timeline
        if self.semantic is not None:
            self.semantic.refresh(fresh.changes)
        metrics = self._deps.metrics
        metrics.overlay.set(self.overlay.held_bytes)
        metrics.quarantined.set(fresh.quarantine is not None)
        newest = self.wal.newest
        lag = 0 if newest is None else max(newest.offset - fresh.applied, 0)
        metrics.fold_lag.set(lag)
        self.standstill.observe(fresh.applied, lag)


def _semantic_tier(deps: GatewayDeps, partition: int) -> SemanticTier | None:
    embedder, settings = deps.embedder, deps.settings
    if embedder is None:
        return None
    index = VectorIndex(
        deps.views[partition],
        settings.namespace,
        embedder.dimensions,
        settings.index_rows,
    )
    return SemanticTier(
        embedder,
        index,
        deps.metrics,
        deadline_s=settings.embed_deadline_s,
        candidates=settings.candidates,
    )


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
