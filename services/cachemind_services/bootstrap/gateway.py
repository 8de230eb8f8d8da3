"""The adapters that one gateway worker stands on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.encoder_cache import open_embedder
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import LogIdentity
from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.adapters.registered_later import RegisteredLater
from cachemind.adapters.upstream_http import HttpUpstream, UpstreamTimeouts
from cachemind.core.credentials import TokenVerifier
from cachemind.core.payloads import PLAIN, Payloads
from cachemind.errors import EmbeddingUnavailable, LogUnavailable
from cachemind.ports import Clock, Embedder, LogReader, LogWriter, StoreView, Upstream
from cachemind.ports.data_keys import HeldKeys
from cachemind.ports.receipt_index import ReceiptFinder
from cachemind.types import Namespace, Offset, Partition
from cachemind_services.bootstrap.log import (
    codec_of,
    identify,
    kafka_of,
    open_views,
    topics_of,
)
from cachemind_services.bootstrap.log_end import last_end
from cachemind_services.bootstrap.past import StoredPast
from cachemind_services.bootstrap.past_files import open_past_of
from cachemind_services.bootstrap.payloads import open_payloads
from cachemind_services.bootstrap.receipts import open_receipt_view
from cachemind_services.bootstrap.tokens import open_tokens
from cachemind_services.bootstrap.upstream_credentials import (
    HeaderFields,
    read_upstream_credentials,
)
from cachemind_services.broker.distribution import default_cache_dir
from cachemind_services.settings import VIEWS, Settings

logger = logging.getLogger(__name__)

START_DEADLINE_S: Final = 5.0
WAIT_S: Final = 2.0
"""For the log to say where it ends: a stop waits for an answer under way."""

MS_PER_S: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayPorts:
    """What a gateway worker is given; it closes views, log and upstream itself."""

    views: Sequence[StoreView]
    wal: LogWriter
    codec: RegisteredLater
    embedder: Embedder | None
    upstream: Upstream
    clock: Clock
    log_ends: Callable[[], Mapping[Partition, Offset]]
    past: Callable[[Partition], StoredPast]
    receipts: ReceiptFinder | None = None
    payloads: Payloads = PLAIN
    payload_keys: HeldKeys | None = None
    payloads_of: Callable[[Namespace], tuple[Payloads, HeldKeys | None]] | None = None
    tokens: TokenVerifier | None = None
    upstream_credentials: Mapping[Namespace, HeaderFields] = field(
        default_factory=dict, repr=False
    )


def identify_if_up(settings: Settings) -> LogIdentity | None:
    """Return which log this is, None while Kafka is away: then requests bypass.

    Raises: `TopicMisconfigured`, `LogRejected`, `InvalidSetting`.
    """
    try:
        return identify(settings, START_DEADLINE_S)
    except LogUnavailable as error:
        logger.warning("Kafka is away, answering from upstream alone: %s", error)
        return None


def open_gateway(settings: Settings, log: LogIdentity | None) -> GatewayPorts:
    """Return the ports of one worker. Call it inside the running event loop.

    Where the schema registry is away requests bypass the cache until it answers.
    Raises: `InvalidSetting`; `LogRejected` where it finds our schema incompatible.
    """
    opened = open_payloads(settings, makes=True)
    kafka, wal = kafka_of(settings), topics_of(settings).wal.name
    writer = {**kafka, "delivery.timeout.ms": str(settings.wal_timeout_ms)}
    return GatewayPorts(
        views=open_views(settings, log, view_scratch(settings)),
        wal=KafkaWriter(writer, wal),
        codec=RegisteredLater(codec_of(settings)),
        embedder=open_encoder(settings),
        upstream=HttpUpstream(settings.upstream, upstream_timeouts(settings)),
        clock=SystemClock(),
        log_ends=log_ends(
            KafkaReader(kafka, wal, request_s=WAIT_S), settings.partitions
        ),
        past=partial(open_past_of, settings, log),
        receipts=open_receipt_view(settings, view_scratch(settings)),
        payloads=opened.payloads,
        payload_keys=opened.keys,
        payloads_of=partial(_payloads_of, settings),
        tokens=open_tokens(settings.oidc_file),
        upstream_credentials=read_upstream_credentials(settings.upstream_credentials),
    )


def _payloads_of(
    settings: Settings, namespace: Namespace
) -> tuple[Payloads, HeldKeys | None]:
    opened = open_payloads(replace(settings, namespace=namespace), makes=True)
    return opened.payloads, opened.keys


def view_scratch(settings: Settings) -> Path:
    """Return where RocksDB's own logs of this host's readers go."""
    folder = settings.data_dir / VIEWS
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def log_ends(
    reader: LogReader, partitions: int
) -> Callable[[], Mapping[Partition, Offset]]:
    """Return a function that asks where the records of every partition end."""

    def ends() -> Mapping[Partition, Offset]:
        numbers = map(Partition, range(partitions))
        return {number: last_end(reader, number) for number in numbers}

    return ends


def upstream_timeouts(settings: Settings) -> UpstreamTimeouts:
    """Return how long upstream may take."""
    return UpstreamTimeouts(
        connect_s=settings.upstream_connect_timeout_ms / MS_PER_S,
        first_byte_s=settings.upstream_first_byte_timeout_ms / MS_PER_S,
        idle_s=settings.upstream_idle_timeout_ms / MS_PER_S,
    )


def open_encoder(settings: Settings) -> Embedder | None:
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
