"""Prometheus metrics of a gateway. Labels are fixed words, never request text."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

from cachemind.events import Outcome
from cachemind_services.gateway.tally import Tally

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_FAST_S: Final = (
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5,
)  # fmt: skip
_SLOW_S: Final = (
    0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300,
)  # fmt: skip
_GROUP: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_COSINE: Final = (0.5, 0.7, 0.8, 0.85, 0.88, 0.9, 0.92, 0.94, 0.96, 0.98, 0.99, 1.0)


class GatewayMetrics:
    """Counts in this process; over several workers where a folder is shared.

    The folder must be the one that `PROMETHEUS_MULTIPROC_DIR` named when the process
    started: prometheus_client reads it once, when it is imported.
    """

    def __init__(self, multiprocess_dir: Path | None = None) -> None:
        self._dir = multiprocess_dir
        self._registry = CollectorRegistry()
        self._count_requests(self._registry)
        self._time_requests(self._registry)
        self._watch_the_log(self._registry)
        self._count_answers(self._registry)

    def _count_requests(self, registry: CollectorRegistry) -> None:
        requests = Counter(
            "cachemind_requests",
            "Chat completion requests by outcome.",
            ["outcome"],
            registry=registry,
        )
        self.outcomes = {each: requests.labels(each.value) for each in Outcome}
        self.invalid = Counter(
            "cachemind_requests_invalid",
            "Requests refused with 4xx.",
            registry=registry,
        )
        self.proxied = Counter(
            "cachemind_requests_proxied", "Requests of other paths.", registry=registry
        )
        self.refused = Counter(
            "cachemind_refused",
            "Requests refused for who asks: unauthenticated, forbidden, too many.",
            ["reason"],
            registry=registry,
        )
        self.refusals_unlogged = Counter(
            "cachemind_refusals_not_logged",
            "Refusals above the rate at which they are put on the log.",
            registry=registry,
        )
        self.reasons = Counter(
            "cachemind_not_hit",
            "Misses and bypasses by reason.",
            ["reason"],
            registry=registry,
        )

    def _time_requests(self, registry: CollectorRegistry) -> None:
        latency = Histogram(
            "cachemind_latency_seconds",
            "Of misses and bypasses. upstream: until its head; total: until the end.",
            ["part"],
            buckets=_SLOW_S,
            registry=registry,
        )
        self.total = latency.labels("total")
        self.upstream = latency.labels("upstream")
        self.added = Histogram(
            "cachemind_added_latency_seconds",
            "Time until the answer's head, less the time spent upstream. Of hits: all.",
            buckets=_FAST_S,
            registry=registry,
        )
        self._hits = {
            each: Tally(self.outcomes[each], self.added, _FAST_S) for each in Outcome
        }

    def _watch_the_log(self, registry: CollectorRegistry) -> None:
        self.wal_append = Histogram(
            "cachemind_wal_append_seconds",
            "From append to acknowledgement.",
            buckets=_FAST_S,
            registry=registry,
        )
        failures = Counter(
            "cachemind_wal_failures",
            "Appends without acknowledgement.",
            ["reason"],
            registry=registry,
        )
        self.wal_unavailable = failures.labels("unavailable")
        self.wal_rejected = failures.labels("rejected")
        self.group = Histogram(
            "cachemind_wal_group_reads",
            "Look-ups in one WAL record.",
            buckets=_GROUP,
            registry=registry,
        )
        self.fold_lag = Gauge(
            "cachemind_gateway_fold_lag_records",
            "Offsets between this gateway's newest record and the store it shows.",
            multiprocess_mode="livemax",
            registry=registry,
        )
        self.overlay = Gauge(
            "cachemind_overlay_bytes",
            "Acknowledged entries that are not folded yet.",
            multiprocess_mode="livesum",
            registry=registry,
        )
        self.quarantined = Gauge(
            "cachemind_quarantined",
            "1 while the namespace is not served: a rollback of it failed.",
            multiprocess_mode="livemax",
            registry=registry,
        )

    def _count_answers(self, registry: CollectorRegistry) -> None:
        self.joined = Counter(
            "cachemind_single_flight_joins",
            "Misses that waited for an identical request.",
            registry=registry,
        )
        similarity = Histogram(
            "cachemind_similarity",
            "Cosine of the closest candidate.",
            ["verdict"],
            buckets=_COSINE,
            registry=registry,
        )
        self.hit_similarity = similarity.labels("hit")
        self.miss_similarity = similarity.labels("miss")
        self.admissions = Counter(
            "cachemind_admissions",
            "Upstream answers by admission rule, or by reason of refusal.",
            ["reason"],
            registry=registry,
        )
        self.upstream_status = Counter(
            "cachemind_upstream_answers",
            "Upstream answers to misses by class of status; none: no answer.",
            ["status"],
            registry=registry,
        )
        self.embed_failures = Counter(
            "cachemind_embed_failures",
            "Look-ups without a vector: the encoder failed or was late.",
            registry=registry,
        )

    def hit(self, outcome: Outcome, added_s: float) -> None:
        """Count a hit, and the time until its answer's head; on the event loop."""
        self._hits[outcome].count(added_s)

    def settle(self) -> None:
        """Give Prometheus all hits so far; on the event loop."""
        for tally in self._hits.values():
            tally.settle()

    def render(self) -> bytes:
        """Return the text exposition, over all workers where they share a folder."""
        if self._dir is None:
            return generate_latest(self._registry)
        together = CollectorRegistry()
        MultiProcessCollector(together, path=str(self._dir))  # type: ignore[no-untyped-call]  # prometheus_client has no types for it
        return generate_latest(together)
