"""What streams of sealed files are put together from.

Without the process that seals them: a command that reads such files has no use for it,
nor for Faust, whose import takes longer than most commands.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import Final

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import LogIdentity
from cachemind.agents.sink_cuts import CutSearch
from cachemind.agents.sink_resume import SinkPlace
from cachemind.agents.sink_stream import SinkRules, SinkStream
from cachemind.codec.audit_file import cut_of
from cachemind.core.audit_files import AuditStream, Rotation
from cachemind.core.audit_manifest import LogOrigin
from cachemind.ports.audit_files import AuditTarget, SinkMetrics
from cachemind.types import Partition
from cachemind_services.bootstrap.log import kafka_of, topics_of
from cachemind_services.settings import Settings

WAIT_S: Final = 2.0
"""Of the readers: shorter than a step of the stop."""

CUT_WAIT_MS: Final = 15_000
"""Longer than the pause between two cuts of an idle log."""


class SinkParts:
    """What streams of sealed files are put together from; `closers` closes it."""

    def __init__(
        self,
        settings: Settings,
        log: LogIdentity,
        target: AuditTarget,
        metrics: SinkMetrics,
        closers: ExitStack,
    ) -> None:
        self._log = log
        self._topics = topics_of(settings)
        self._target = target
        kafka = kafka_of(settings)
        self.receipts, self.cuts = (
            closers.enter_context(
                closing(KafkaReader(kafka, name, request_s=WAIT_S, stall_s=WAIT_S))
            )
            for name in (self._topics.audit.name, self._topics.audit_cuts.name)
        )
        self._rules = SinkRules(
            clock=SystemClock(),
            metrics=metrics,
            rotation=Rotation(
                max_bytes=settings.sink_file_bytes,
                max_age_ms=settings.sink_file_s * 1000,
                cut_wait_ms=CUT_WAIT_MS,
            ),
            cuts=CutSearch(self.cuts, cut_of),
        )

    def stream(self, stream: AuditStream) -> SinkStream:
        """Return one stream."""
        of_cuts = stream.partition is None
        topic = (self._topics.audit_cuts if of_cuts else self._topics.audit).name
        place = SinkPlace(
            stream=stream,
            origin=LogOrigin(
                cluster_id=self._log.cluster_id,
                topic=topic,
                topic_id=self._log.topic_ids[topic],
            ),
            partition=stream.partition or Partition(0),
            reader=self.cuts if of_cuts else self.receipts,
            target=self._target,
        )
        return SinkStream(place, self._rules)
