"""Prometheus metrics of a materializer. Labels are partitions and fixed words."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from cachemind.core.rollback_report import RollbackStatus
from cachemind.core.state import Effect
from cachemind.types import Offset, Partition


class PrometheusFoldMetrics:
    """`FoldMetrics` for Prometheus.

    Under `PROMETHEUS_MULTIPROC_DIR` the gateway's `/metrics` shows these as well.
    """

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._events = Counter(
            "cachemind_fold_events",
            "Events folded, by kind and what they did.",
            ["partition", "kind", "effect"],
            registry=registry,
        )
        self._dead = Counter(
            "cachemind_dead_letters",
            "Records sent to the dead-letter topic.",
            ["partition", "reason"],
            registry=registry,
        )
        self._lag = Gauge(
            "cachemind_fold_lag_records",
            "Records on the log that are not folded yet, at most.",
            ["partition"],
            multiprocess_mode="livemax",
            registry=registry,
        )
        self._rollbacks = Counter(
            "cachemind_rollbacks",
            "Rollbacks that ended, by how.",
            ["partition", "status"],
            registry=registry,
        )
        self._quarantined = Gauge(
            "cachemind_quarantined_namespaces",
            "Namespaces that no sound state could be restored for.",
            ["partition"],
            multiprocess_mode="livemax",
            registry=registry,
        )
        self._halted = Gauge(
            "cachemind_fold_halted",
            "1 while the fold stands at a record that this build cannot fold.",
            ["partition"],
            multiprocess_mode="livemax",
            registry=registry,
        )
        self._applied = Gauge(
            "cachemind_fold_applied_offset",
            "Offset of the last record folded.",
            ["partition"],
            multiprocess_mode="livemax",
            registry=registry,
        )

    def folded(self, partition: Partition, kind: str, effect: Effect) -> None:
        """One event of `kind` had `effect`."""
        self._events.labels(partition, kind, effect.value).inc()

    def dead_lettered(self, partition: Partition, reason: str) -> None:
        """One record went to the dead-letter topic."""
        self._dead.labels(partition, reason).inc()

    def fold_lag(self, partition: Partition, records: int) -> None:
        """`records` at most are committed on the log and not folded yet."""
        self._lag.labels(partition).set(records)

    def rolled_back(self, partition: Partition, status: RollbackStatus) -> None:
        """One rollback ended; a quarantine is something to wake somebody for."""
        self._rollbacks.labels(partition, status.value).inc()

    def quarantined(self, partition: Partition, namespaces: int) -> None:
        """So many namespaces are not to be served on this host."""
        self._quarantined.labels(partition).set(namespaces)

    def halted(self, partition: Partition, *, stands: bool) -> None:
        """The fold of `partition` stands at a record, or goes on again."""
        self._halted.labels(partition).set(int(stands))

    def progressed(self, partition: Partition, applied: Offset) -> None:
        """The store now holds everything up to `applied`."""
        self._applied.labels(partition).set(applied)
