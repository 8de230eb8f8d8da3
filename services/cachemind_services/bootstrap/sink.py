"""Builds and runs the sink."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from cachemind.adapters.audit_folder import AuditFolder
from cachemind.adapters.clock import SystemClock
from cachemind.adapters.kafka_topics import LogIdentity
from cachemind.agents.sink import SinkDeps, run_sink
from cachemind.errors import AuditFilesUnavailable, InvalidSetting
from cachemind.ports.audit_files import AuditTarget
from cachemind_services.bootstrap.checkpoints import dying_at
from cachemind_services.bootstrap.log import identify, kafka_of, topics_of
from cachemind_services.bootstrap.sink_parts import SinkParts
from cachemind_services.settings import Settings
from cachemind_services.sink_metrics import PrometheusSinkMetrics

if TYPE_CHECKING:  # the extra that it needs is not installed by default
    from cachemind.adapters.audit_bucket import AuditBucket

logger = logging.getLogger(__name__)

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
