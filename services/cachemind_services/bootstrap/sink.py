"""Builds and runs the sink."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Final

from cachemind.adapters.audit_folder import AuditFolder
from cachemind.adapters.clock import SystemClock
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import LogIdentity
from cachemind.agents.sink import SinkDeps, run_sink
from cachemind.agents.sink_cuts import CutSearch
from cachemind.agents.sink_resume import SinkPlace
from cachemind.agents.sink_stream import SinkRules, SinkStream
from cachemind.codec.audit_file import cut_of
from cachemind.core.audit_files import AuditStream, Rotation
from cachemind.core.audit_manifest import LogOrigin
from cachemind.errors import AuditFilesUnavailable, InvalidSetting
from cachemind.ports.audit_files import AuditTarget, SinkMetrics
from cachemind.types import Partition
from cachemind_services.bootstrap.checkpoints import dying_at
from cachemind_services.bootstrap.log import identify, kafka_of, topics_of
from cachemind_services.settings import Settings
from cachemind_services.sink_metrics import PrometheusSinkMetrics

if TYPE_CHECKING:  # the extra that it needs is not installed by default
    from cachemind.adapters.audit_bucket import AuditBucket

logger = logging.getLogger(__name__)

WAIT_S: Final = 2.0
"""Of the readers: shorter than a step of the stop."""

CUT_WAIT_MS: Final = 15_000
"""Longer than the pause between two cuts of an idle log."""

UPLOADS: Final = 5
"""A file goes up in one step, which takes longer than others: of the largest one, at
2 Mbit/s, about as long as five times the default patience."""

Failpoint = Callable[[str], None]


def run(settings: Settings, failpoint: str = "") -> int:
    """Seal until SIGTERM; return the exit code of `run_sink`.

    The process dies where it reaches `failpoint`, for tests.
    Raises: `InvalidSetting`, `TopicMisconfigured`, `LogUnavailable`, `LogRejected`.
    """
    target = target_of(settings, dying_at(failpoint))
    log = identify(settings)
    code, settled = asyncio.run(_run(settings, log, target))
    if not settled:
        # A thread waits for a target that does not answer, and Python for the
        # thread. What is open is made anew, as after any other death.
        logging.shutdown()
        os._exit(code)
    return code


def target_of(settings: Settings, failpoint: Failpoint = lambda _: None) -> AuditTarget:
    """Return where files are sealed, or were. Raises: `InvalidSetting`."""
    if not settings.sink_url:
        return AuditFolder(settings.sink_folder, failpoint)
    bucket = _bucket(settings, failpoint)
    try:
        bucket.require_lock()
    except AuditFilesUnavailable as error:
        logger.warning("whether objects can be locked is not known: %s", error)
    return bucket


def _bucket(settings: Settings, failpoint: Failpoint) -> AuditBucket:
    try:
        from cachemind.adapters.audit_bucket import AuditBucket, ObjectLock
    except ImportError as error:
        raise InvalidSetting(
            "CACHEMIND_SINK_URL", "needs boto3: pip install 'cachemind[aws]'"
        ) from error
    days = settings.sink_retention_days
    lock = ObjectLock(mode=settings.sink_retention_mode, days=days) if days else None
    spool = settings.data_dir / "sink"
    return AuditBucket(settings.sink_url, SystemClock(), lock, spool, failpoint)


async def _run(
    settings: Settings, log: LogIdentity, target: AuditTarget
) -> tuple[int, bool]:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    metrics = PrometheusSinkMetrics()
    with ExitStack() as closers:
        parts = SinkParts(settings, log, target, metrics, closers)
        topics = topics_of(settings)
        return await run_sink(
            SinkDeps(
                stream_of=parts.stream,
                receipts=parts.receipts,
                kafka=kafka_of(settings),
                receipts_topic=topics.audit.name,
                cuts_topic=topics.audit_cuts.name,
                group=f"{settings.topic_prefix}-sink",
                metrics=metrics,
                stop=stop,
                patience_s=UPLOADS * settings.watchdog_s,
            )
        )


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
