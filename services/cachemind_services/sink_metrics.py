"""Prometheus metrics of a sink. Labels are streams and fixed words."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from cachemind.core.audit_files import AuditStream

REASONS = ("target-away", "log-away", "damaged")


class PrometheusSinkMetrics:
    """`SinkMetrics` for Prometheus.

    Under `PROMETHEUS_MULTIPROC_DIR` the gateway's `/metrics` shows these as well.
    """

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._lag = _gauge(
            registry,
            "cachemind_sink_lag_records",
            "Records of an audit topic that are in no sealed file yet, at most.",
        )
        self._foreign = _gauge(
            registry,
            "cachemind_sink_foreign_files",
            "Files beside the sealed ones that are none of ours.",
        )
        self._stalled = _gauge(
            registry,
            "cachemind_sink_stalled",
            "1 where nothing is sealed any more, by why.",
            "reason",
        )
        self._files = _counter(
            registry, "cachemind_sink_sealed_files", "Files that were sealed."
        )
        self._records = _counter(
            registry, "cachemind_sink_sealed_records", "Records in them."
        )
        self._bytes = _counter(
            registry, "cachemind_sink_sealed_bytes", "Bytes of them."
        )
        self._irregular = _counter(
            registry,
            "cachemind_sink_irregular_records",
            "Sealed records that do not continue their chain.",
        )

    def lag(self, stream: AuditStream, records: int) -> None:
        """`records` at most are on the topic and in no sealed file yet."""
        self._lag.labels(stream.folder).set(records)

    def sealed(self, stream: AuditStream, records: int, size_bytes: int) -> None:
        """One more file is sealed."""
        self._files.labels(stream.folder).inc()
        self._records.labels(stream.folder).inc(records)
        self._bytes.labels(stream.folder).inc(size_bytes)

    def irregular(self, stream: AuditStream, records: int) -> None:
        """So many more sealed records do not continue their chain."""
        self._irregular.labels(stream.folder).inc(records)

    def foreign(self, stream: AuditStream, files: int) -> None:
        """So many files in the stream's folder are none of ours."""
        self._foreign.labels(stream.folder).set(files)

    def stalled(self, stream: AuditStream, reason: str | None) -> None:
        """The stream's files do not go on, for one of few words; None: they do."""
        for word in REASONS:
            self._stalled.labels(stream.folder, word).set(int(word == reason))

    def let_go(self, stream: AuditStream) -> None:
        """Another sink has the stream now."""
        self.stalled(stream, None)
        self.lag(stream, 0)
        self.foreign(stream, 0)


def _gauge(registry: CollectorRegistry, name: str, doc: str, *labels: str) -> Gauge:
    return Gauge(
        name, doc, ["stream", *labels], multiprocess_mode="livemax", registry=registry
    )


def _counter(registry: CollectorRegistry, name: str, doc: str) -> Counter:
    return Counter(name, doc, ["stream"], registry=registry)
