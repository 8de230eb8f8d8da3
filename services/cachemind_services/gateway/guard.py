"""Where authentication is on: admits, answers who is not, and says so on the log."""

from __future__ import annotations

from typing import Final

from cachemind.core.access import (
    OPERATIONS,
    Operation,
    http_operation,
    is_reserved,
)
from cachemind.errors import CacheError, Forbidden, InvalidRequest, Unauthenticated
from cachemind.types import Namespace
from cachemind_services.gateway.admitted import admitted_in
from cachemind_services.gateway.call import trace_of
from cachemind_services.gateway.deps import Access
from cachemind_services.gateway.door import Door
from cachemind_services.gateway.http_io import (
    Header,
    Receive,
    Scope,
    Send,
    send_error,
    send_invalid,
)
from cachemind_services.gateway.limits import TooMany
from cachemind_services.gateway.parts import Parts
from cachemind_services.gateway.refusals import Refusals, access_log
from cachemind_services.gateway.routes import Routes
from cachemind_services.gateway.shared import Shared
from cachemind_services.gateway.spaces import Spaces
from cachemind_services.gateway.wal_session import WalSession
from cachemind_services.gateway.whoami import send_whoami

FLUSH_S: Final = 1.0
_CHALLENGE: Final[tuple[Header, ...]] = (
    (b"www-authenticate", b'Bearer realm="cachemind"'),
)
_OPEN: Final = frozenset(
    surface.http.partition(" ")[2]
    for surface in OPERATIONS.values()
    if surface.http and not surface.known
)
"""Paths that are answered to anybody, whatever the method: balancers ask by HEAD."""

_RETRY: Final[tuple[Header, ...]] = ((b"retry-after", b"1"),)


class Guard:
    """Stands before the routes."""

    def __init__(
        self, shared: Shared, spaces: Spaces, access: Access, routes: Routes
    ) -> None:
        deps = shared.deps
        self._shared = shared
        self._spaces = spaces
        self._routes = routes
        self._metrics = deps.metrics
        self._tokens = access.tokens
        self._door = Door(shared, access)
        self._refusals = Refusals(deps.clock, deps.metrics)
        self._wal = access_log(shared)

    async def start(self) -> None:
        """Begin following the keys."""
        keys = self._door.keys
        await keys.start()
        self._spaces.also(keys.not_ready, keys.warnings)

    async def stop(self) -> None:
        """End following; what was refused is on the log."""
        if self._tokens is not None:
            await self._tokens.close()
        await self._wal.flush(FLUSH_S)
        await self._door.keys.stop()

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, if its caller may ask for it."""
        path: str = scope["path"]
        if path in _OPEN:
            await self._routes.operate(path, send)
            return
        operation = http_operation(scope["method"], path)
        try:
            parts = await self._let_in(operation, scope, send)
            if parts is None:
                return
            parts.users += 1
            try:
                if operation is Operation.COMPLETE:
                    await parts.chat.handle(scope, receive, send)
                elif operation is Operation.PASS_ON:
                    await self._pass_on(parts, scope, receive, send)
                else:
                    await self._routes.handle(parts, scope, receive, send)
            finally:
                parts.users -= 1
        except (Unauthenticated, Forbidden, TooMany, InvalidRequest) as error:
            await self._say_no(error, scope, send)

    async def _let_in(
        self, operation: Operation | None, scope: Scope, send: Send
    ) -> Parts | None:
        """Return the namespace that is asked in, None where all is answered.

        Raises: `Unauthenticated`, `Forbidden`, `TooMany`, `InvalidRequest`.
        """
        if not self._door.keys.known:
            problem = "the keys were not read yet"
            await send_error(send, 503, problem, code="starting", headers=_RETRY)
            return None
        admitted = await self._door.admit(scope)
        if operation is None:
            await send_error(send, 404, "no such call", code="not_found")
            return None
        if operation is Operation.WHOAMI:
            await send_whoami(admitted.caller, admitted.namespace, send)
            return None
        namespace = self._door.require(admitted, operation)
        parts = self._spaces.find(namespace)
        if parts is not None:
            return parts
        try:
            return await self._spaces.open(namespace)
        except CacheError as error:
            await send_error(send, 503, str(error), code="busy", headers=_RETRY)
            return None

    async def _pass_on(
        self, parts: Parts, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Whether it streams is upstream's matter, so it counts as one that does."""
        admitted = admitted_in(scope)
        assert admitted is not None  # noqa: S101 - the door told it
        admitted.meter.begin_stream()
        try:
            await self._routes.handle(parts, scope, receive, send)
        finally:
            admitted.meter.end_stream()

    async def _say_no(
        self,
        error: Unauthenticated | Forbidden | TooMany | InvalidRequest,
        scope: Scope,
        send: Send,
    ) -> None:
        if isinstance(error, InvalidRequest):
            await send_invalid(send, error)
            return
        if isinstance(error, TooMany):
            self._metrics.refused.labels(error.what).inc()
            code, param = "rate_limit_exceeded", None
            headers: tuple[Header, ...] = ((b"retry-after", b"%d" % error.retry_s),)
        else:
            await self._refused(scope, error)
            code, param, headers = "unauthenticated", None, _CHALLENGE
            if isinstance(error, Forbidden):
                code, param, headers = "forbidden", error.right, ()
        await send_error(
            send, error.status, str(error), code=code, param=param, headers=headers
        )

    async def _refused(self, scope: Scope, error: Unauthenticated | Forbidden) -> None:
        trace = trace_of(dict(scope["headers"]), self._shared.ids).trace_id
        admitted = admitted_in(scope)
        if admitted is None:
            self._refusals.tell(self._wal, trace, error)
            return
        wal = await self._wal_of(admitted.namespace)
        self._refusals.tell(wal, trace, error, admitted.caller.principal)

    async def _wal_of(self, namespace: Namespace | None) -> WalSession:
        """Return the log of the namespace that was asked in."""
        if namespace is None or is_reserved(namespace):
            return self._wal
        try:
            return (await self._spaces.open(namespace)).wal
        except CacheError:
            return self._wal
