"""Prometheus metrics of a collector. Labels are partitions and fixed words."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from cachemind.types import Partition


class PrometheusCollectMetrics:
    """`CollectMetrics` for Prometheus.

    Under `PROMETHEUS_MULTIPROC_DIR` the gateway's `/metrics` shows these as well.
    """

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._evicted = Counter(
            "cachemind_collector_evicted",
            "Entries that events on the log give up, by why.",
            ["partition", "reason"],
            registry=registry,
        )
        self._failed = Counter(
            "cachemind_collector_failed_sweeps",
            "Sweeps that were given up, by what was away.",
            ["partition", "reason"],
            registry=registry,
        )
        self._took = Gauge(
            "cachemind_collector_sweep_seconds",
            "How long the last whole sweep of a partition took.",
            ["partition"],
            multiprocess_mode="livemax",
            registry=registry,
        )
        self._at = Gauge(
            "cachemind_collector_last_sweep_timestamp_seconds",
            "When the last whole sweep of a partition ended.",
            ["partition"],
            multiprocess_mode="livemax",
            registry=registry,
        )

    def evicted(self, partition: Partition, reason: str, entries: int) -> None:
        """An event that gives up so many entries is on the log."""
        self._evicted.labels(str(partition), reason).inc(entries)

    def swept(self, partition: Partition, took_s: float, at_ns: int) -> None:
        """A whole sweep has ended."""
        self._took.labels(str(partition)).set(took_s)
        self._at.labels(str(partition)).set(at_ns / 1e9)

    def failed(self, partition: Partition, reason: str) -> None:
        """A sweep was given up."""
        self._failed.labels(str(partition), reason).inc()
