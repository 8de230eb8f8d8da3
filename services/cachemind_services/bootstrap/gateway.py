"""Builds and runs one gateway worker."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import uvicorn
import uvloop

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.encoder_cache import open_embedder
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import LogIdentity
from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.adapters.upstream_http import HttpUpstream, UpstreamTimeouts
from cachemind.core.policy import MS_PER_S, Policy, Volatile
from cachemind.errors import EmbeddingUnavailable, LogUnavailable
from cachemind.ports import Embedder, LogReader
from cachemind.types import Namespace, Offset, Partition, Principal, WriterId
from cachemind_services.bootstrap.log import (
    codec_of,
    host_name,
    identify,
    kafka_of,
    open_views,
    topics_of,
)
from cachemind_services.bootstrap.secret import read_secret
from cachemind_services.broker.distribution import default_cache_dir
from cachemind_services.gateway.app import Gateway
from cachemind_services.gateway.deps import (
    GatewayDeps,
    GatewaySettings,
    LogEnds,
    OnWalFailure,
    WalAck,
)
from cachemind_services.gateway.metrics import GatewayMetrics
from cachemind_services.settings import Settings

logger = logging.getLogger(__name__)

START_DEADLINE_S: Final = 5.0
DRAIN_S: Final = 5
"""How long open requests may go on after SIGTERM."""

BACKLOG: Final = 2048


def run(settings: Settings, fds: Sequence[int], number: int) -> int:
    """Serve on the inherited sockets `fds` until SIGTERM; return the exit code."""
    log = _identify_if_up(settings)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings, log, fds, number))


def _identify_if_up(settings: Settings) -> LogIdentity | None:
    """Return the log's identity, None while Kafka is away: then requests bypass."""
    try:
        return identify(settings, START_DEADLINE_S)
    except LogUnavailable as error:
        logger.warning("Kafka is away, answering from upstream alone: %s", error)
        return None


async def _serve(
    settings: Settings, log: LogIdentity | None, fds: Sequence[int], number: int
) -> int:
    server = _Server(
        uvicorn.Config(
            Gateway(_deps(settings, log, number)),
            loop="none",
            http="httptools",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=DRAIN_S,
        )
    )
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, server.drain)
    await server.serve(sockets=[socket.socket(fileno=os.dup(fd)) for fd in fds])
    return 0 if server.started else 1


class _Server(uvicorn.Server):
    """Uvicorn without its signal handling, which ends a clean stop by a signal."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def drain(self) -> None:
        self.should_exit = True


def _deps(settings: Settings, log: LogIdentity | None, number: int) -> GatewayDeps:
    kafka, wal = kafka_of(settings), topics_of(settings).wal.name
    writer = {**kafka, "delivery.timeout.ms": str(settings.wal_timeout_ms)}
    return GatewayDeps(
        settings=_gateway_settings(settings, number),
        views=open_views(settings, log),
        wal=KafkaWriter(writer, wal),
        codec=codec_of(settings),
        embedder=_embedder(settings),
        upstream=HttpUpstream(settings.upstream, _timeouts(settings)),
        clock=SystemClock(),
        random=secrets.token_bytes,
        log_ends=log_ends(KafkaReader(kafka, wal), settings.partitions),
        metrics=GatewayMetrics(metrics_dir()),
    )


def metrics_dir() -> Path | None:
    """Return the folder that the processes of one host share for metrics."""
    named = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    return Path(named) if named else None


def log_ends(reader: LogReader, partitions: int) -> LogEnds:
    """Return a function that asks for the end of every partition."""

    def ends() -> Mapping[Partition, Offset]:
        numbers = map(Partition, range(partitions))
        return {number: reader.bounds(number)[1] for number in numbers}

    return ends


def _gateway_settings(settings: Settings, number: int) -> GatewaySettings:
    writer = f"gateway-{host_name()}-{number}-{secrets.token_hex(4)}"
    return GatewaySettings(
        namespace=Namespace(settings.namespace),
        principal=Principal("local"),
        writer=WriterId(writer),
        secret=read_secret(settings),
        policy=_policy(settings),
        wal_ack=WalAck(settings.wal_ack),
        on_wal_failure=OnWalFailure(settings.on_wal_failure),
        wal_timeout_s=settings.wal_timeout_ms / MS_PER_S,
        embed_deadline_s=settings.embed_deadline_ms / MS_PER_S,
        max_body_bytes=settings.max_body_bytes,
        max_cacheable_bytes=settings.max_cacheable_bytes,
    )


def _policy(settings: Settings) -> Policy:
    return Policy(
        semantic=settings.encoder != "off",
        threshold=settings.similarity_threshold,
        default_ttl_ms=settings.ttl_s * MS_PER_S,
        max_ttl_ms=settings.max_ttl_s * MS_PER_S,
        max_entry_bytes=settings.max_cacheable_bytes,
        volatile=Volatile.SHORT if settings.admit_volatile else Volatile.REFUSE,
        share_across_credentials=settings.share_across_credentials,
    )


def _timeouts(settings: Settings) -> UpstreamTimeouts:
    return UpstreamTimeouts(
        connect_s=settings.upstream_connect_timeout_ms / MS_PER_S,
        first_byte_s=settings.upstream_first_byte_timeout_ms / MS_PER_S,
        idle_s=settings.upstream_idle_timeout_ms / MS_PER_S,
    )


def _embedder(settings: Settings) -> Embedder | None:
    """Return the encoder; None, said in the log, where there is none: exact hits."""
    if settings.encoder == "off":
        return None
    try:
        if settings.encoder == "onnx":
            return open_embedder(default_cache_dir())
        return _reference_embedder()
    except EmbeddingUnavailable as error:
        logger.warning("no encoder, exact hits only: %s", error)
        return None


def _reference_embedder() -> Embedder:
    # Imported here: it brings torch, which takes seconds.
    from cachemind.adapters.embedder_sentence_transformers import (
        SentenceTransformersEmbedder,
    )
    from cachemind.adapters.encoder_files import bundled_encoder

    return SentenceTransformersEmbedder(bundled_encoder())
