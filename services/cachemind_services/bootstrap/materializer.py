"""Builds and runs the materializer."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from cachemind.adapters.checkpoints import RocksCheckpointMaker, RocksCheckpoints
from cachemind.adapters.clock import SystemClock
from cachemind.adapters.kafka_groups import KafkaGroupOffsets
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import LogIdentity
from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rocks_store import RocksStore
from cachemind.adapters.scratch_entries import scratch_entries, sweep_scratch
from cachemind.agents.checkpointing import Checkpointing
from cachemind.agents.forgetting import Forgetting, ForgettingDeps
from cachemind.agents.materializer import Materializer, MaterializerDeps
from cachemind.agents.past import Sources
from cachemind.agents.rollback import Rollbacks
from cachemind.core.topics import TopicSpec
from cachemind.ports import LogReader
from cachemind.types import Partition
from cachemind_services.bootstrap.checkpoints import (
    dying_at,
    local_checkpoints,
    rollback_hooks,
    scratch_path,
)
from cachemind_services.bootstrap.group import group_of, offset_memory
from cachemind_services.bootstrap.hosts import telling_of
from cachemind_services.bootstrap.log import (
    codec_of,
    identify,
    kafka_of,
    store_identity,
    store_path,
    topics_of,
)
from cachemind_services.bootstrap.preparation import (
    forget_replaced,
    prepare,
    store_lock,
)
from cachemind_services.bootstrap.snapshot_desk import SnapshotDesk
from cachemind_services.bootstrap.snapshots import desk_deps
from cachemind_services.control import ControlServer
from cachemind_services.fold_metrics import PrometheusFoldMetrics
from cachemind_services.settings import Settings

Failpoint = Callable[[str], None]

CLOSE_S: Final = 2.0
WAIT_S: Final = 2.0
"""Of the reader and the group's admin client: shorter than a step of the stop."""


def run(settings: Settings, failpoint: str = "") -> int:
    """Fold until SIGTERM; return the exit code of `run_materializer`.

    The process dies where it reaches `failpoint`, for tests.
    Raises: `StoreLocked`, `StoreMismatch`, `TopicMisconfigured`, `LogUnavailable`.
    """
    log = identify(settings)
    with store_lock(settings):
        prepare(settings, log)
        sweep_scratch(scratch_path(settings))
        stores = _open_stores(settings, log)
        return asyncio.run(_run(settings, log, stores, dying_at(failpoint)))


async def _run(
    settings: Settings,
    log: LogIdentity,
    stores: dict[Partition, RocksStore],
    failpoint: Failpoint,
) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    kafka = kafka_of(settings)
    with ExitStack() as opened:
        memory = RocksMemory()
        kept = {p: local_checkpoints(settings, log, p, memory) for p in stores}
        telling = telling_of(settings, log, kept)
        deps = _deps(settings, log, stores, stop, _opened(settings, kafka, opened))
        deps = replace(
            deps,
            rollbacks=_rollbacks(settings, deps, stores, kept, opened, failpoint),
            checkpointing={
                number: _checkpointing(
                    settings,
                    RocksCheckpointMaker(kept[number], store, failpoint),
                    telling.changed,
                    _forgetting(kept[number], store, deps.reader, number),
                )
                for number, store in stores.items()
            },
        )
        materializer = Materializer(deps)
        desk = SnapshotDesk(
            materializer, desk_deps(settings, log, stores, telling.changed)
        )
        async with ControlServer(settings.data_dir, desk.handlers()):
            telling.start()
            opened.callback(telling.stop, CLOSE_S)
            return await materializer.run()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kafka:
    """The materializer's connections."""

    reader: KafkaReader
    letters: KafkaWriter
    offsets: KafkaGroupOffsets


def _opened(settings: Settings, kafka: Mapping[str, str], opened: ExitStack) -> _Kafka:
    topics = topics_of(settings)
    wal, group = topics.wal.name, group_of(settings)
    letters = _dead_letters(kafka, topics.dlq)
    opened.callback(letters.close, CLOSE_S)
    reader = KafkaReader(kafka, wal, request_s=WAIT_S, stall_s=WAIT_S)
    return _Kafka(
        reader=opened.enter_context(closing(reader)),
        letters=letters,
        offsets=opened.enter_context(
            closing(KafkaGroupOffsets(kafka, group, wal, WAIT_S))
        ),
    )


def _deps(
    settings: Settings,
    log: LogIdentity,
    stores: dict[Partition, RocksStore],
    stop: asyncio.Event,
    connected: _Kafka,
) -> MaterializerDeps:
    """Return what the fold stands on, without rollbacks and checkpoints."""
    return MaterializerDeps(
        decoder=codec_of(settings),
        reader=connected.reader,
        stores=stores,
        dead_letters=connected.letters,
        group_offsets=connected.offsets,
        kafka=kafka_of(settings),
        wal_topic=topics_of(settings).wal.name,
        group=group_of(settings),
        metrics=PrometheusFoldMetrics(),
        stop=stop,
        patience_s=settings.watchdog_s,
        offset_memory=offset_memory(settings, log),
        caught_up=partial(forget_replaced, settings),
    )


def _rollbacks(
    settings: Settings,
    deps: MaterializerDeps,
    stores: Mapping[Partition, RocksStore],
    kept: Mapping[Partition, RocksCheckpoints],
    opened: ExitStack,
    failpoint: Failpoint,
) -> Mapping[Partition, Rollbacks]:
    scratch = opened.enter_context(
        closing(
            KafkaGroupOffsets(
                dict(deps.kafka), f"{deps.group}.rollback", deps.wal_topic, WAIT_S
            )
        )
    )

    def of(number: Partition, store: RocksStore) -> Rollbacks:
        sources = Sources(
            partition=number,
            store=store,
            checkpoints=kept[number],
            log=deps.reader,
            decoder=deps.decoder,
            aside=partial(scratch_entries, scratch_path(settings)),
        )
        hooks = rollback_hooks(settings, number, scratch, failpoint)
        return Rollbacks(sources, store, hooks)

    return {number: of(number, store) for number, store in stores.items()}


def _dead_letters(kafka: Mapping[str, str], dlq: TopicSpec) -> KafkaWriter:
    """Return a writer that takes the largest record and what we add to it."""
    largest = {"message.max.bytes": str(dlq.max_message_bytes)}
    return KafkaWriter({**kafka, **largest}, dlq.name)


def _forgetting(
    kept: RocksCheckpoints, store: RocksStore, log: LogReader, partition: Partition
) -> Forgetting:
    return Forgetting(
        ForgettingDeps(
            store=store,
            oldest=kept.oldest,
            log_begins=lambda: log.bounds(partition)[0],
        )
    )


def _checkpointing(
    settings: Settings,
    maker: RocksCheckpointMaker,
    changed: Callable[[], None],
    forgetting: Forgetting,
) -> Checkpointing:
    return Checkpointing(
        maker,
        SystemClock(),
        every_events=settings.checkpoint_events,
        interval_s=settings.checkpoint_interval_s,
        changed=changed,
        forgetting=forgetting,
    )


def _open_stores(settings: Settings, log: LogIdentity) -> dict[Partition, RocksStore]:
    """Return every partition's store, or none open where one fails to."""
    memory = RocksMemory()
    stores: dict[Partition, RocksStore] = {}
    with ExitStack() as opened:
        for number in range(settings.partitions):
            identity = store_identity(settings, log, number)
            store = RocksStore(store_path(settings, number), identity, memory)
            opened.callback(store.close)
            stores[Partition(number)] = store
        # From here on the materializer closes them, in order with its own stop.
        opened.pop_all()
    return stores
