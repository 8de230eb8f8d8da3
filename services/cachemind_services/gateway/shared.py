"""What the namespaces of one worker share: ports, threads, limits."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from cachemind.types import Namespace, Partition
from cachemind_services.gateway.deps import GatewayDeps
from cachemind_services.gateway.identity import Ids
from cachemind_services.gateway.known_bodies import KnownBodies
from cachemind_services.gateway.overlay import Held
from cachemind_services.gateway.partition_follower import PartitionFollower
from cachemind_services.gateway.proxy import Proxy
from cachemind_services.gateway.receipts import Receipts
from cachemind_services.gateway.recovery import Recovery
from cachemind_services.gateway.semantic import Encoder
from cachemind_services.gateway.time_travel import PastThread
from cachemind_services.gateway.turns import Turns
from cachemind_services.gateway.wal_session import LogLine

KNOWN_BYTES: Final = 32 * 2**20
_LOG: Final = logging.getLogger("cachemind.gateway")


class Shared:
    """One worker's own pieces, whatever namespaces it serves."""

    def __init__(self, deps: GatewayDeps) -> None:
        settings = deps.settings
        self.deps = deps
        self.ids = Ids(deps.random)
        self.line = LogLine(settings)
        self.recovery = Recovery(self.line, deps.log_ends, settings.wal_retry_s)
        self.held = Held()
        self.known = KnownBodies(KNOWN_BYTES)
        self.encoder = _encoder(deps)
        finder = deps.receipts
        self.receipts = None if finder is None else Receipts(finder)
        self.proxy = Proxy(deps.upstream)
        file = settings.turns_file
        self.turns = None if file is None else Turns(file)
        self._lags: dict[Namespace, int] = {}
        self._quarantined: set[Namespace] = set()
        self._followers: dict[Partition, PartitionFollower] = {}
        self._pasts: dict[Partition, PastThread] = {}

    def follower(self, partition: Partition) -> PartitionFollower:
        """Return who follows a partition."""
        found = self._followers.get(partition)
        if found is None:
            deps = self.deps
            found = PartitionFollower(deps.views[partition], partition, deps.log_ends)
            self._followers[partition] = found
        return found

    def past(self, partition: Partition) -> PastThread | None:
        """Return who knows the past of a partition, None where nobody does."""
        opened = self.deps.past
        if opened is None:
            return None
        found = self._pasts.get(partition)
        if found is None:
            found = self._pasts[partition] = PastThread(lambda: opened(partition))
        return found

    def gauge(self, namespace: Namespace, *, lag: int, quarantined: bool) -> None:
        """Take in how a namespace is; tell the metrics how all of them are."""
        self._lags[namespace] = lag
        if quarantined:
            self._quarantined.add(namespace)
        else:
            self._quarantined.discard(namespace)
        self._tell()

    def gone(self, namespace: Namespace) -> None:
        """Count a namespace no more: it is not served here any longer."""
        self._lags.pop(namespace, None)
        self._quarantined.discard(namespace)
        if self.encoder is not None:
            contexts = self.encoder.contexts
            self.encoder.submit(lambda: contexts.forget(namespace))
        self._tell()

    def _tell(self) -> None:
        metrics = self.deps.metrics
        metrics.overlay.set(self.held.held_bytes)
        metrics.fold_lag.set(max(self._lags.values(), default=0))
        metrics.quarantined.set(bool(self._quarantined))

    def start(self) -> None:
        """Begin watching the log."""
        self.recovery.start()

    async def stop_log(self, left_s: float) -> None:
        """Close the log's writer, saying what it lost."""
        await self.recovery.stop()
        lost = await asyncio.to_thread(self.deps.wal.close, left_s)
        if lost:
            _LOG.error("%d records were not acknowledged before the end", lost)

    async def close(self) -> None:
        """Release what is left; nothing is asked of it any more."""
        for past in self._pasts.values():
            await asyncio.to_thread(past.close)
        await self.deps.upstream.close()
        if self.encoder is not None:
            await asyncio.to_thread(self.encoder.close)
        for view in self.deps.views:
            view.close()
        if self.turns is not None:
            self.turns.close()


def _encoder(deps: GatewayDeps) -> Encoder | None:
    embedder, settings = deps.embedder, deps.settings
    if embedder is None:
        return None
    return Encoder(
        embedder,
        deps.metrics,
        deadline_s=settings.embed_deadline_s,
        limit_rows=settings.index_rows,
    )
