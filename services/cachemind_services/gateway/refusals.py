"""Puts who was refused on the log, at a bounded rate."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cachemind.core.access import ACCESS_NAMESPACE
from cachemind.core.token_bucket import Bucket, Rate
from cachemind.errors import Forbidden, LogError, Unauthenticated
from cachemind.events import Outcome, Read
from cachemind.ports import Clock
from cachemind.types import (
    EMPTY,
    HASH_BYTES,
    ExactKey,
    Principal,
    Sha256,
    TraceId,
)
from cachemind_services.gateway.metrics import GatewayMetrics
from cachemind_services.gateway.shared import Shared
from cachemind_services.gateway.wal_session import WalSession

RATE: Final = Rate(per_s=20.0, burst=200.0)
"""Anybody can be refused as often as he likes; the log must not grow by that."""

ANONYMOUS: Final = Principal("anonymous")
_UNAUTHENTICATED: Final = "unauthenticated"
_FORBIDDEN: Final = "forbidden:"
_STRATEGY: Final = "access"
_NO_KEY: Final = ExactKey(bytes(HASH_BYTES))
_NO_HASH: Final = Sha256(bytes(HASH_BYTES))


def access_log(shared: Shared) -> WalSession:
    """Return the log of what was refused in no namespace that the caller has."""
    deps = shared.deps
    settings = replace(deps.settings, namespace=ACCESS_NAMESPACE)
    return WalSession(
        deps.wal,
        deps.codec,
        deps.clock,
        settings,
        deps.metrics,
        shared.ids,
        shared.line,
    )


class Refusals:
    """Appends a `Read` that was no look-up: outcome bypass, and the reason."""

    def __init__(self, clock: Clock, metrics: GatewayMetrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._bucket = Bucket.full(RATE, clock.now_ns())

    def tell(
        self,
        wal: WalSession,
        trace: TraceId,
        error: Unauthenticated | Forbidden,
        principal: Principal = ANONYMOUS,
    ) -> None:
        """Say on the log who was refused what; nobody waits for it."""
        forbidden = isinstance(error, Forbidden)
        self._metrics.refused.labels(
            "forbidden" if forbidden else _UNAUTHENTICATED
        ).inc()
        now_ns = self._clock.now_ns()
        left = self._bucket.taken(RATE, now_ns)
        if left is None:
            self._metrics.refusals_unlogged.inc()
            return
        self._bucket = left
        reason = f"{_FORBIDDEN}{error.right}" if isinstance(error, Forbidden) else ""
        read = Read(
            trace_id=trace,
            principal=principal,
            occurred_at_ns=now_ns,
            outcome=Outcome.BYPASS,
            exact_key=_NO_KEY,
            matched_key=None,
            similarity=None,
            strategy=_STRATEGY,
            version_seen=EMPTY,
            prompt_hash=_NO_HASH,
            response_hash=None,
            reason=reason or _UNAUTHENTICATED,
        )
        try:
            wal.read(read)
        except LogError:
            self._metrics.refusals_unlogged.inc()
