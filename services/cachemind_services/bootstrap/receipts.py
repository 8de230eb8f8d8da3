"""The index of receipts: the process that keeps it, and gateways' views of it."""

from __future__ import annotations

import logging
import signal
import threading
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import LogIdentity
from cachemind.adapters.receipt_rows import IndexIdentity
from cachemind.adapters.rocks_options import MIB, RocksMemory
from cachemind.adapters.rocks_receipts import (
    RocksReceiptIndex,
    RocksReceiptView,
    forget_index,
)
from cachemind.adapters.sealed_receipts import SealedReceipts
from cachemind.agents.receipt_follower import ReceiptFollower, Seal, seal_nothing
from cachemind.errors import StoreMismatch
from cachemind_services.bootstrap.log import identify, kafka_of, topics_of
from cachemind_services.settings import Settings

logger = logging.getLogger(__name__)

CACHE_BYTES: Final = 32 * MIB
WRITE_BUFFER_BYTES: Final = 16 * MIB
MEMTABLE_BYTES: Final = 4 * MIB
WAIT_S: Final = 2.0
"""For an answer about bounds: a stop waits for one under way."""


def run(settings: Settings) -> int:
    """Keep the index until SIGTERM; return the exit code of `cachemind receipts`.

    Raises: `StoreLocked`, `StoreUnavailable`, `LogError`.
    """
    log = identify(settings)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    kafka, topics = kafka_of(settings), topics_of(settings)
    with ExitStack() as closers:
        index = closers.enter_context(closing(_open_index(settings, log)))
        receipts, cuts = (
            closers.enter_context(
                closing(KafkaReader(kafka, spec.name, request_s=WAIT_S))
            )
            for spec in (topics.audit, topics.audit_cuts)
        )
        seal = _seal(settings, index, closers)
        ReceiptFollower(index, receipts, cuts, stop, seal).run()
    return 0


def _seal(settings: Settings, index: RocksReceiptIndex, closers: ExitStack) -> Seal:
    """Return what keeps the sealed copy, where there is a folder for it."""
    if settings.log_dir is None:
        return seal_nothing
    sealed = SealedReceipts(
        settings.sealed_dir, settings.keys_dir, index.receipt_offsets()
    )
    return closers.enter_context(closing(sealed)).seal


def open_receipt_view(settings: Settings, scratch: Path) -> RocksReceiptView | None:
    """Return a reader of the host's index; None where receipts are not asked for."""
    if not settings.audit_mode:
        return None
    return RocksReceiptView(_path(settings), _memory(), settings.partitions, scratch)


def _open_index(settings: Settings, log: LogIdentity) -> RocksReceiptIndex:
    """Return the index, made anew where it is another log's."""
    topics = topics_of(settings)
    identity = IndexIdentity(
        cluster_id=log.cluster_id,
        audit_topic_id=log.topic_ids[topics.audit.name],
        cuts_topic_id=log.topic_ids[topics.audit_cuts.name],
    )

    def opened() -> RocksReceiptIndex:
        return RocksReceiptIndex(
            _path(settings),
            identity,
            _memory(),
            settings.partitions,
            settings.receipts_kept,
        )

    try:
        return opened()
    except StoreMismatch as error:
        logger.warning("%s; it is made anew", error)
        forget_index(_path(settings))
        return opened()


def _path(settings: Settings) -> Path:
    return settings.data_dir / "receipts-index"


def _memory() -> RocksMemory:
    return RocksMemory(CACHE_BYTES, WRITE_BUFFER_BYTES, MEMTABLE_BYTES)
