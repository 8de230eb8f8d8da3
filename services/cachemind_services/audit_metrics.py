"""Prometheus metrics of a signer. Labels are partitions and fixed words."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from cachemind.types import Partition

CUT_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 0.75, 0.8, 0.9, 1.0, 1.5, 2.5, 5, 10, 60)


class PrometheusAuditMetrics:
    """`AuditMetrics` for Prometheus.

    Under `PROMETHEUS_MULTIPROC_DIR` the gateway's `/metrics` shows these as well.
    """

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._signed = Counter(
            "cachemind_receipts_signed",
            "Receipts that are committed.",
            ["partition"],
            registry=registry,
        )
        self._unreadable = Counter(
            "cachemind_receipts_unreadable",
            "Records that could not be decoded when they were signed.",
            ["partition"],
            registry=registry,
        )
        self._lag = Gauge(
            "cachemind_signer_lag_records",
            "Records on the log that have no receipt yet, at most.",
            ["partition"],
            multiprocess_mode="livemax",
            registry=registry,
        )
        self._stopped = Gauge(
            "cachemind_signer_stopped",
            "1 where the receipts of a partition cannot go on, by why.",
            ["partition", "reason"],
            multiprocess_mode="livemax",
            registry=registry,
        )
        self._cuts = Counter(
            "cachemind_cuts", "Cuts that are committed.", registry=registry
        )
        self._covered = Counter(
            "cachemind_receipts_cut", "Receipts that cuts are over.", registry=registry
        )
        self._took = Histogram(
            "cachemind_cut_seconds",
            "From the oldest receipt under a cut being seen to its commit.",
            buckets=CUT_SECONDS,
            registry=registry,
        )
        self._cutter_stopped = Gauge(
            "cachemind_cutter_stopped",
            "1 where no cut is signed, by why.",
            ["reason"],
            multiprocess_mode="livemax",
            registry=registry,
        )
        self._refused = Counter(
            "cachemind_key_events_refused",
            "Key events on the log that do not hold and have no effect.",
            registry=registry,
        )
        self._why: str | None = None

    def signed(self, partition: Partition, receipts: int) -> None:
        """So many more receipts are committed."""
        self._signed.labels(partition).inc(receipts)

    def unreadable(self, partition: Partition) -> None:
        """One record could not be decoded; its receipt says so."""
        self._unreadable.labels(partition).inc()

    def signer_lag(self, partition: Partition, records: int) -> None:
        """`records` at most are committed on the log and have no receipt yet."""
        self._lag.labels(partition).set(records)

    def stopped(self, partition: Partition, reason: str) -> None:
        """A partition's receipts do not go on."""
        self._stopped.labels(partition, reason).set(1)

    def let_go(self, partition: Partition) -> None:
        """Another process has the partition now: it tells the lag."""
        self._lag.labels(partition).set(0)

    def cut(self, receipts: int, took_s: float) -> None:
        """A cut over so many new receipts is committed."""
        self._cuts.inc()
        self._covered.inc(receipts)
        if receipts:
            self._took.observe(took_s)
        if self._why is not None:
            self._cutter_stopped.labels(self._why).set(0)
            self._why = None

    def cutter_stopped(self, reason: str) -> None:
        """No cut is signed any more, or for now."""
        self._why = reason
        self._cutter_stopped.labels(reason).set(1)

    def key_event_refused(self) -> None:
        """A key event on the log does not hold and has no effect."""
        self._refused.inc()
