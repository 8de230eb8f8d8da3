"""Builds and runs the collector."""

from __future__ import annotations

import asyncio
import logging
import secrets
import shutil
import signal
import socket
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Final

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.file_lock import exclusive
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import LogIdentity
from cachemind.adapters.kafka_transaction import KafkaSoleWriter
from cachemind.adapters.rocks_options import MIB, RocksMemory
from cachemind.adapters.rocks_view import RocksView
from cachemind.agents.collecting import Collecting, CollectingDeps, LogTime
from cachemind.agents.collector import CollectorDeps, run_collector
from cachemind.core.collecting import CollectRules
from cachemind.errors import LogUnavailable
from cachemind.ports import LogReader
from cachemind.ports.collecting import CollectMetrics
from cachemind.types import Partition, WriterId
from cachemind_services.bootstrap.checkpoints import dying_at
from cachemind_services.bootstrap.group import host_id
from cachemind_services.bootstrap.log import (
    codec_of,
    identify,
    kafka_of,
    store_identity,
    store_path,
    topics_of,
)
from cachemind_services.bootstrap.log_end import records_end
from cachemind_services.collect_metrics import PrometheusCollectMetrics
from cachemind_services.settings import Settings

logger = logging.getLogger(__name__)

WAIT_S: Final = 2.0
"""Of the reader: shorter than a step of the stop."""

IDENTIFY_S: Final = 5.0
"""For topics that are made or checked, a stop waits for that."""

TRANSACTION_S: Final = 3.0
CACHE_BYTES: Final = 16 * MIB
"""A sweep reads everything once: there is nothing to gain by keeping it."""

WRITE_BUFFER_BYTES: Final = 16 * MIB
MEMTABLE_BYTES: Final = 4 * MIB
NS_PER_S: Final = 1_000_000_000
Failpoint = Callable[[str], None]


def run(settings: Settings, failpoint: str = "") -> int:
    """Sweep until SIGTERM; return the exit code of `run_collector`.

    Waits for a log that does not answer. The process dies where it reaches
    `failpoint`, for tests.
    Raises: `InvalidSetting`, `StoreLocked` (another collector of this host runs),
    `TopicMisconfigured`, `LogRejected`.
    """
    with exclusive(settings.data_dir / "collector.lock"):
        log = _identified(settings)
        return asyncio.run(_run(settings, log, dying_at(failpoint)))


def _identified(settings: Settings) -> LogIdentity:
    while True:
        try:
            return identify(settings, IDENTIFY_S)
        except LogUnavailable as error:
            logger.warning("the collector waits for the log: %s", error)
            time.sleep(WAIT_S)


async def _run(settings: Settings, log: LogIdentity, failpoint: Failpoint) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    metrics, wal = PrometheusCollectMetrics(), topics_of(settings).wal.name
    kafka = kafka_of(settings)
    with closing(KafkaReader(kafka, wal, request_s=WAIT_S, stall_s=WAIT_S)) as reader:
        sweepers = Sweepers(settings, log, reader, metrics, failpoint)
        return await run_collector(
            CollectorDeps(
                open_sweeper=sweepers.of,
                ask_log=lambda: reader.bounds(Partition(0)),
                kafka=kafka,
                topic=wal,
                group=f"{settings.topic_prefix}-collector",
                instance=f"collector-{host_id(settings)}",
                interval_s=settings.collect_interval_s,
                metrics=metrics,
                stop=stop,
                patience_s=settings.watchdog_s,
            )
        )


class Sweepers:
    """Makes what sweeps a partition of this host's stores."""

    def __init__(
        self,
        settings: Settings,
        log: LogIdentity,
        reader: LogReader,
        metrics: CollectMetrics,
        failpoint: Failpoint,
    ) -> None:
        """Own the host's folder for what its readers of stores write down."""
        self._settings = settings
        self._log = log
        self._reader = reader
        self._metrics = metrics
        self._failpoint = failpoint
        self._codec = codec_of(settings)
        self._rules = CollectRules(grace_ns=settings.collect_grace_s * NS_PER_S)
        self._log_time = LogTime(self._rules.grace_ns)
        self._memory = RocksMemory(CACHE_BYTES, WRITE_BUFFER_BYTES, MEMTABLE_BYTES)
        self._scratch = settings.data_dir / "collector"
        # A killed one has left its own there.
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(parents=True)

    def of(self, partition: Partition) -> Collecting:
        """Return what sweeps `partition`; contacts nobody yet."""
        settings, host = self._settings, socket.gethostname()
        return Collecting(
            CollectingDeps(
                partition=partition,
                view=RocksView(
                    store_path(settings, partition),
                    self._memory,
                    identity=store_identity(settings, self._log, partition),
                    scratch=self._scratch,
                ),
                log_end=partial(records_end, self._reader, partition),
                writer=KafkaSoleWriter(
                    kafka_of(settings),
                    topics_of(settings).wal.name,
                    f"{settings.topic_prefix}-collector-{partition}",
                    TRANSACTION_S,
                    partition,
                ),
                writer_id=WriterId(
                    f"collector-{host}-{partition}-{secrets.token_hex(4)}"
                ),
                codec=self._codec,
                clock=SystemClock(),
                log_time=self._log_time,
                random=secrets.token_bytes,
                rules=self._rules,
                metrics=self._metrics,
                failpoint=self._failpoint,
            )
        )
