"""The running pieces of one worker, and how they hang together."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from cachemind.core.partitioner import partition_of
from cachemind.types import Partition
from cachemind_services.gateway.admin import Admin
from cachemind_services.gateway.admission import AdmissionDesk
from cachemind_services.gateway.chat import ChatHandler
from cachemind_services.gateway.deps import GatewayDeps
from cachemind_services.gateway.entries import Entries
from cachemind_services.gateway.fetcher import Fetcher
from cachemind_services.gateway.follower import Follower, Freshness
from cachemind_services.gateway.identity import Ids
from cachemind_services.gateway.look import Reader
from cachemind_services.gateway.overlay import Overlay
from cachemind_services.gateway.payload_keys import KeyFollower
from cachemind_services.gateway.proxy import Proxy
from cachemind_services.gateway.receipts import Receipts
from cachemind_services.gateway.receipts_api import ReceiptsApi
from cachemind_services.gateway.recovery import Recovery
from cachemind_services.gateway.rollback_api import (
    RollbackApi,
)
from cachemind_services.gateway.semantic import SemanticTier, VectorIndex
from cachemind_services.gateway.signatures import Signatures
from cachemind_services.gateway.standstill import Standstill
from cachemind_services.gateway.time_travel import TimeTraveller
from cachemind_services.gateway.turns import Turns
from cachemind_services.gateway.understanding import Understanding
from cachemind_services.gateway.versions_api import (
    VersionsApi,
)
from cachemind_services.gateway.wal_session import WalSession
from cachemind_services.gateway.writes import Writes

LATE_S: Final = 5.0
"""A store that stands still so long, with records to fold, is worth a word."""

STALE_S: Final = 60.0
"""And is not served from after so long: it may lack an invalidation. A materializer
that was killed is back long before."""

_LOG: Final = logging.getLogger("cachemind.gateway")


class Parts:
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
        self.keys = KeyFollower(deps.payload_keys, self._keys_gone)
        self.follower = Follower(
            view, namespace, partition, deps.log_ends, self._freshened
        )
        entries = Entries(view, self.overlay, namespace, self.follower)
        self.writes = Writes(
            self.wal, self.overlay, self.follower, self.semantic, deps.metrics
        )
        self.past = TimeTraveller(deps.past, namespace)
        self.versions = VersionsApi(self.past, Partition(partition), deps.payloads)
        self.rollbacks = RollbackApi(
            self.past, self.follower, self.wal, ids, deps.clock, deps.payloads
        )
        finder = deps.receipts
        self.receipts = None if finder is None else Receipts(finder)
        self.receipts_api = ReceiptsApi(self.receipts, namespace)
        self.proxy = Proxy(deps.upstream)
        self.standstill = Standstill()
        self.recovery = Recovery(self.wal, deps.log_ends, settings.wal_retry_s)
        file = settings.turns_file
        self.turns = None if file is None else Turns(file)
        self._answer(ids, entries)

    def _answer(self, ids: Ids, entries: Entries) -> None:
        """Put together what answers look-ups, and what an operator asks."""
        deps = self._deps
        desk = AdmissionDesk(deps, ids, self.semantic)
        reader = Reader(deps, entries, self.semantic)
        understanding = Understanding(deps, ids)
        self.trace = understanding.trace
        self.chat = ChatHandler(
            deps,
            ids,
            understanding,
            self.wal,
            self.follower,
            reader,
            Fetcher(deps, ids, self.writes, desk, reader, self.turns, self.follower),
            Signatures(self.receipts),
            self._doubt,
        )
        self.admin = Admin(
            deps,
            understanding,
            entries,
            self.writes,
            desk,
            self.follower,
            self.versions,
        )

    def _doubt(self) -> str | None:
        """Return why nothing of the store may be served just now."""
        if self.follower.quarantine is not None:
            return "quarantined"
        return "store-late" if self.standstill.seconds() > STALE_S else None

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
        if self.keys.problem is not None:
            found.append(f"encrypted entries may be misses: {self.keys.problem}")
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
        if self.receipts is not None:
            await self.receipts.close()
        await self.keys.stop()
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

    def _keys_gone(self) -> None:
        """Forget the vectors that a shredded key had sealed."""
        if self.semantic is not None:
            self.semantic.refresh(None)

    def _freshened(self, fresh: Freshness) -> None:
        self.keys.folded(fresh.state.shredded_keys)
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
        deps.payloads,
    )
    return SemanticTier(
        embedder,
        index,
        deps.metrics,
        deadline_s=settings.embed_deadline_s,
        candidates=settings.candidates,
    )
