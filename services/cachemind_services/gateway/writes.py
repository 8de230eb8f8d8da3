"""Events that change what is served: append them, then show them at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Final

from cachemind.errors import LogError
from cachemind.events import Feedback, Invalidated, Refused, Stored
from cachemind.types import EventId, ExactKey, Lsn, Principal, TraceId
from cachemind_services.gateway.follower import Follower
from cachemind_services.gateway.metrics import GatewayMetrics
from cachemind_services.gateway.overlay import Overlay
from cachemind_services.gateway.semantic import SemanticTier
from cachemind_services.gateway.wal_session import WalSession

_LOG: Final = logging.getLogger("cachemind.gateway")


class Writes:
    """The only place where a gateway makes state-changing events."""

    def __init__(
        self,
        wal: WalSession,
        overlay: Overlay,
        follower: Follower,
        semantic: SemanticTier | None,
        metrics: GatewayMetrics,
    ) -> None:
        self._wal = wal
        self._overlay = overlay
        self._follower = follower
        self._semantic = semantic
        self._metrics = metrics
        self._background: set[asyncio.Task[None]] = set()

    async def store(
        self,
        stored: Stored,
        trace: TraceId,
        principal: Principal | None = None,
        event_id: EventId | None = None,
    ) -> Lsn:
        """Return the LSN of an acknowledged `Stored`, which is served from now on.

        With the `event_id` of a request once it is folded: it may be done already.
        Raises: `LogError`.
        """
        appended = await self._wal.append(stored, trace, principal, event_id)
        if event_id is not None:
            return appended.lsn
        self._overlay.add(appended.envelope, appended.lsn, self._follower.state)
        self._metrics.overlay.set(self._overlay.held_bytes)
        if self._semantic is not None and stored.embedding is not None:
            self._semantic.put(stored.context_key, stored.exact_key, stored.embedding)
        # The fold may have passed it while the acknowledgement was on its way.
        self._overlay.prune(self._follower.applied)
        return appended.lsn

    async def invalidate(
        self,
        invalidated: Invalidated,
        trace: TraceId,
        principal: Principal | None = None,
        event_id: EventId | None = None,
    ) -> Lsn:
        """Return the LSN of an acknowledged `Invalidated`, in effect from now on.

        Raises: `LogError`.
        """
        appended = await self._wal.append(invalidated, trace, principal, event_id)
        self._overlay.add(appended.envelope, appended.lsn, self._follower.state)
        self._overlay.prune(self._follower.applied)
        return appended.lsn

    async def feedback(
        self,
        feedback: Feedback,
        trace: TraceId,
        principal: Principal | None = None,
        event_id: EventId | None = None,
    ) -> Lsn:
        """Return the LSN of an acknowledged `Feedback`. Raises: `LogError`."""
        return (await self._wal.append(feedback, trace, principal, event_id)).lsn

    def refuse(
        self, key: ExactKey, trace: TraceId, reason: str, upstream_status: int
    ) -> None:
        """Say on the WAL why an answer is not stored; nobody waits for it."""
        refused = Refused(
            exact_key=key,
            trace_id=trace,
            reason=reason,
            upstream_status=upstream_status,
        )
        self._metrics.admissions.labels(reason).inc()
        self._start(self._append(refused, trace))

    async def drain(self) -> None:
        """Wait for what was started and not awaited."""
        while self._background:
            await asyncio.wait(set(self._background))

    async def _append(self, refused: Refused, trace: TraceId) -> None:
        try:
            await self._wal.append(refused, trace)
        except LogError as error:
            _LOG.warning("a Refused is not on the log: %s", error)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
