"""What one worker runs for one namespace, and how it hangs together."""

from __future__ import annotations

import asyncio
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
from cachemind_services.gateway.look import Reader
from cachemind_services.gateway.once import Once
from cachemind_services.gateway.overlay import Overlay
from cachemind_services.gateway.payload_keys import KeyFollower
from cachemind_services.gateway.policy_api import PolicyApi
from cachemind_services.gateway.receipts_api import ReceiptsApi
from cachemind_services.gateway.rollback_api import RollbackApi
from cachemind_services.gateway.rules import Rules
from cachemind_services.gateway.semantic import SemanticTier
from cachemind_services.gateway.shared import Shared
from cachemind_services.gateway.signatures import Signatures
from cachemind_services.gateway.standstill import Standstill
from cachemind_services.gateway.time_travel import TimeTraveller
from cachemind_services.gateway.understanding import Understanding
from cachemind_services.gateway.vector_index import VectorIndex
from cachemind_services.gateway.versions_api import VersionsApi
from cachemind_services.gateway.wal_session import WalSession
from cachemind_services.gateway.writes import Writes

LATE_S: Final = 5.0
"""A store that stands still so long, with records to fold, is worth a word."""

STALE_S: Final = 60.0
"""And is not served from after so long: it may lack an invalidation. A materializer
that was killed is back long before."""


class Parts:
    """The running pieces of one namespace on one worker."""

    def __init__(self, shared: Shared, deps: GatewayDeps) -> None:
        """`deps` are as the namespace has them: its settings, its payloads."""
        self._deps = deps
        self._shared = shared
        settings = deps.settings
        self.namespace = namespace = settings.namespace
        partition = Partition(partition_of(namespace.encode(), len(deps.views)))
        view = deps.views[partition]
        ids = shared.ids
        self.wal = WalSession(
            deps.wal, deps.codec, deps.clock, settings, deps.metrics, ids, shared.line
        )
        self.rules = Rules(namespace, settings.policy)
        self.overlay = Overlay(settings.overlay_bytes, shared.held)
        self.semantic = _semantic_tier(shared, deps, partition)
        self.keys = KeyFollower(deps.payload_keys, self._keys_gone)
        self.follower = Follower(shared.follower(partition), namespace, self._freshened)
        entries = Entries(view, self.overlay, namespace, self.follower)
        self.writes = Writes(
            self.wal, self.overlay, self.follower, self.semantic, deps.metrics
        )
        self.past = TimeTraveller(shared.past(partition), namespace)
        self.versions = VersionsApi(self.past, partition, deps.payloads)
        self.rollbacks = RollbackApi(
            self.past, self.follower, self.wal, ids, deps.clock, deps.payloads
        )
        self.receipts_api = ReceiptsApi(shared.receipts, namespace)
        self.proxy = shared.proxy
        self.standstill = Standstill()
        self.users = 0
        """Requests under way, where anybody counts them."""

        self._answer(entries)

    def _answer(self, entries: Entries) -> None:
        """Put together what answers look-ups, and what an operator asks."""
        deps, shared, ids = self._deps, self._shared, self._shared.ids
        desk = AdmissionDesk(deps, ids, self.semantic, self.rules, self.follower)
        reader = Reader(deps, entries, self.semantic)
        self.understanding = Understanding(deps, ids, self.rules, shared.known)
        self.trace = self.understanding.trace
        self.chat = ChatHandler(
            deps,
            ids,
            self.understanding,
            self.wal,
            self.follower,
            reader,
            Fetcher(deps, ids, self.writes, desk, reader, shared.turns, self.follower),
            Signatures(shared.receipts),
            self._doubt,
        )
        self.admin = Admin(
            deps,
            self.understanding,
            entries,
            self.writes,
            desk,
            self.follower,
            self.versions,
            self.rules,
            PolicyApi(self.rules, self.wal, self.follower),
            Once(
                deps.views[self.follower.partition],
                self.follower,
                self.namespace,
                deps.settings.principal,
            ),
        )

    async def start(self) -> None:
        """Begin following keys and store; answers requests from now on."""
        await self.keys.start()
        await self.follower.start()

    def _doubt(self) -> str | None:
        """Return why nothing of the store may be served just now."""
        if self.follower.quarantine is not None:
            return "quarantined"
        return "store-late" if self.standstill.seconds() > STALE_S else None

    @property
    def idle(self) -> bool:
        """Return whether nothing would be lost or cut off by closing it now."""
        return (
            not self.users
            and not self.chat.tasks
            and self.wal.idle
            and self.overlay.empty
        )

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
        if self.rules.problem is not None:
            found.append(f"{self.rules.problem}: requests go to upstream alone")
        if (still_s := self.standstill.seconds()) > LATE_S:
            found.append(
                f"the store stays at {self.follower.applied} for {still_s:.0f} s, "
                f"{self.wal.newest} is acknowledged: does the materializer run?"
            )
        return found

    async def land(self, timeout_s: float) -> None:
        """Let the upstream calls under way end, at most `timeout_s`."""
        flights = set(self.chat.tasks)
        if flights:
            _, late = await asyncio.wait(flights, timeout=timeout_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def flush(self, timeout_s: float) -> None:
        """Wait until every append so far has its answer, at most `timeout_s`."""
        await self.keys.stop()
        await self.wal.flush(timeout_s)
        await self.writes.drain()

    async def close(self) -> None:
        """Stop following; landed and flushed before."""
        await self.follower.stop()

    def _keys_gone(self) -> None:
        """Forget the vectors that a shredded key had sealed."""
        if self.semantic is not None:
            self.semantic.refresh(None)

    def _freshened(self, fresh: Freshness) -> None:
        self.rules.follow(fresh.state.policy)
        self.understanding.follow()
        self.keys.folded(fresh.state.shredded_keys)
        self.overlay.prune(fresh.applied)
        self.overlay.rebase(fresh.state.timeline)
        self.wal.timeline = fresh.state.timeline
        if self.semantic is not None:
            self.semantic.refresh(fresh.changes)
        newest = self.wal.newest
        lag = 0 if newest is None else max(newest.offset - fresh.applied, 0)
        self.standstill.observe(fresh.applied, lag)
        quarantined = fresh.quarantine is not None
        self._shared.gauge(self.namespace, lag=lag, quarantined=quarantined)


def _semantic_tier(
    shared: Shared, deps: GatewayDeps, partition: Partition
) -> SemanticTier | None:
    encoder, settings = shared.encoder, deps.settings
    if encoder is None:
        return None
    index = VectorIndex(
        deps.views[partition],
        settings.namespace,
        encoder.dimensions,
        encoder.contexts,
        deps.payloads,
    )
    return SemanticTier(encoder, index, settings.candidates)
