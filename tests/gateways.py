"""A gateway on memory adapters: a log, a fold loop and stores, all in this process."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.memory_checkpoints import MemoryCheckpoints
from cachemind.adapters.memory_embedder import MemoryEmbedder
from cachemind.adapters.memory_log import MemoryLog
from cachemind.adapters.memory_store import MemoryStore
from cachemind.adapters.upstream_http import HttpUpstream, UpstreamTimeouts
from cachemind.agents.past import Sources
from cachemind.agents.rollback import Rollbacks
from cachemind.codec.codec import Codec
from cachemind.core.operation import hash_of
from cachemind.core.partitioner import partition_of
from cachemind.core.payloads import SealedPayloads
from cachemind.core.rollback_report import RollbackProgress
from cachemind.core.snapshots import SnapshotManifest
from cachemind.core.state import EntryReader, NamespaceState
from cachemind.core.working_set import WorkingSet
from cachemind.events import Body, Envelope, PolicyChanged, Read, Reads, RolledBack
from cachemind.ports import Embedder, LiveStore
from cachemind.types import (
    FIRST_TIMELINE,
    EventId,
    Lsn,
    Namespace,
    Offset,
    Partition,
    Principal,
    TraceId,
    WriterId,
)
from cachemind_services.bootstrap.past import Elsewhere, StoredPast
from cachemind_services.gateway.app import Gateway
from cachemind_services.gateway.deps import (
    Access,
    GatewayDeps,
    GatewaySettings,
    OpenPayloads,
)
from cachemind_services.gateway.metrics import GatewayMetrics
from tests.payload_hosts import KeyHost
from tests.upstreams import served

T = TypeVar("T")
NAMESPACE = Namespace("shop")
PARTITIONS = 2
SETTINGS = GatewaySettings(
    namespace=NAMESPACE,
    principal=Principal("gateway"),
    writer=WriterId("gateway-1"),
    secret=bytes(range(32)),
    wal_timeout_s=0.5,
    wal_retry_s=0.2,
    embed_deadline_s=2.0,
)


class Fold:
    """Folds the memory log into memory stores, in a thread, until paused."""

    def __init__(self, log: MemoryLog, codec: Codec) -> None:
        self._log = log
        self._codec = codec
        self.stores = [MemoryStore() for _ in range(PARTITIONS)]
        self.checkpoints = [MemoryCheckpoints() for _ in range(PARTITIONS)]
        self.snapshots: dict[str, SnapshotManifest] = {}
        self.progress: RollbackProgress | None = None
        self._stop = threading.Event()
        self._run = threading.Event()
        self._run.set()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def pause(self) -> None:
        self._run.clear()

    def resume(self) -> None:
        self._run.set()

    def close(self) -> None:
        self._stop.set()
        self._run.set()
        self._thread.join()

    def _loop(self) -> None:
        starts = {Partition(p): Offset(0) for p in range(PARTITIONS)}
        for batch in self._log.reader().follow(starts, self._stop.is_set):
            self._run.wait()
            for record in batch:
                assert record.value is not None
                envelope = self._codec.decode(record.value)
                if isinstance(envelope.body, RolledBack):
                    self._roll_back(envelope, envelope.body, record.lsn)
                    continue
                store = self.stores[record.lsn.partition]
                working = WorkingSet(partial(_load, store), store.requests)
                working.apply(envelope, record.lsn)
                store.commit(record.lsn.offset, working.steps())

    def _roll_back(self, envelope: Envelope, body: RolledBack, lsn: Lsn) -> None:
        store = self.stores[lsn.partition]
        rollbacks = Rollbacks(self.sources(lsn.partition, store), store)
        step = rollbacks.step(envelope, body, lsn)
        rollbacks.commit(lsn.offset, {envelope.namespace: [step]})

    def sources(self, partition: Partition, store: LiveStore) -> Sources:
        """Return what the past of `store` is rebuilt from."""
        return Sources(
            partition=partition,
            store=store,
            checkpoints=self.checkpoints[partition],
            log=self._log.reader(),
            decoder=self._codec,
        )


def _load(
    store: MemoryStore, namespace: Namespace
) -> tuple[NamespaceState, EntryReader]:
    return store.namespace(namespace), store.reader(namespace)


@dataclass(frozen=True)
class World:
    """Everything a test may look at or disturb."""

    url: str
    log: MemoryLog
    fold: Fold
    codec: Codec
    deps: GatewayDeps

    @property
    def envelopes(self) -> list[Envelope]:
        """Return what the WAL holds of our namespace, in order."""
        partition = partition_of(NAMESPACE.encode(), PARTITIONS)
        reader = self.log.reader()
        first, end = reader.bounds(partition)
        return [
            self.codec.decode(record.value)
            for batch in reader.read(partition, first, end)
            for record in batch
            if record.value is not None
        ]

    @property
    def bodies(self) -> list[Body]:
        return [envelope.body for envelope in self.envelopes]

    @property
    def reads(self) -> list[Read]:
        return [
            read
            for body in self.bodies
            if isinstance(body, Reads)
            for read in body.items
        ]

    def of(self, kind: type[T]) -> list[T]:
        """Return the WAL's events of one kind."""
        return [body for body in self.bodies if isinstance(body, kind)]


def _unrelated() -> Envelope:
    body = PolicyChanged(policy=os.urandom(4).hex())
    return Envelope(
        event_id=EventId(os.urandom(16)),
        namespace=NAMESPACE,
        trace_id=TraceId(os.urandom(16)),
        principal=Principal("test"),
        occurred_at_ns=1,
        writer=WriterId("test"),
        writer_seq=1,
        timeline=FIRST_TIMELINE,
        op_hash=hash_of(body, 1),
        body=body,
    )


@contextmanager
def gateway(
    upstream_url: str,
    settings: GatewaySettings = SETTINGS,
    *,
    embedder: Embedder | None = None,
    timeouts: UpstreamTimeouts | None = None,
    paused: bool = False,
    preload: int = 0,
    log_away: bool = False,
    keys: KeyHost | None = None,
    access: Access | None = None,
    payloads_of: OpenPayloads | None = None,
) -> Iterator[World]:
    """Run a gateway before `upstream_url`; yield its world.

    With `access` it asks who asks. With `keys` its payloads are encrypted. It may begin
    with a paused fold, with some records on the log, or without a log.
    """
    codec = Codec()
    log = MemoryLog(PARTITIONS, SystemClock())
    fold = Fold(log, codec)
    if paused:
        fold.pause()
    for _ in range(preload):
        log.writer().append(NAMESPACE.encode(), codec.encode(_unrelated()), ())
    if log_away:
        log.go_away()
    deps = memory_deps(
        log, fold, HttpUpstream(upstream_url, timeouts or UpstreamTimeouts()), settings
    )
    if embedder is not None:
        deps = replace(deps, embedder=embedder)
    deps = replace(_with_keys(deps, keys), access=access, payloads_of=payloads_of)
    try:
        with served(Gateway(deps), lifespan="on") as url:
            yield World(url, log, fold, codec, deps)
    finally:
        fold.close()


@contextmanager
def another_worker(
    world: World, upstream_url: str, keys: KeyHost | None = None
) -> Iterator[str]:
    """Run a second gateway on the same log and stores; yield its URL."""
    upstream = HttpUpstream(upstream_url, UpstreamTimeouts())
    deps = memory_deps(world.log, world.fold, upstream, world.deps.settings)
    with served(Gateway(_with_keys(deps, keys)), lifespan="on") as url:
        yield url


def _with_keys(deps: GatewayDeps, keys: KeyHost | None) -> GatewayDeps:
    if keys is None:
        return deps
    payloads = SealedPayloads(keys.cipher)
    return replace(deps, payloads=payloads, payload_keys=keys.keys)


def memory_deps(
    log: MemoryLog, fold: Fold, upstream: HttpUpstream, settings: GatewaySettings
) -> GatewayDeps:
    """Return what a gateway is built from, without keys of any kind."""
    reader = log.reader()
    return GatewayDeps(
        settings=settings,
        views=[store.view() for store in fold.stores],
        wal=log.writer(),
        codec=Codec(),
        embedder=MemoryEmbedder(),
        upstream=upstream,
        clock=SystemClock(),
        random=os.urandom,
        log_ends=lambda: {
            Partition(p): reader.bounds(Partition(p))[1] for p in range(PARTITIONS)
        },
        metrics=GatewayMetrics(),
        past=lambda number: past_of(fold, number),
    )


def past_of(fold: Fold, number: Partition | None = None) -> StoredPast:
    """Return the past of a partition's namespaces, by default of ours."""
    home = Partition(partition_of(NAMESPACE.encode(), PARTITIONS))
    partition = home if number is None else number
    view = fold.stores[partition].view()
    elsewhere = Elsewhere(
        snapshot=fold.snapshots.get, progress=lambda: fold.progress, close=lambda: None
    )
    return StoredPast(view, fold.sources(partition, view), elsewhere)


def changed(**fields: object) -> GatewaySettings:
    """Return the test settings with some fields changed."""
    return replace(SETTINGS, **fields)  # type: ignore[arg-type]  # names are checked at run time


def folded(world: World) -> bool:
    """Return whether the gateway's view shows all that the log holds."""
    partition = partition_of(NAMESPACE.encode(), PARTITIONS)
    _, end = world.log.reader().bounds(partition)
    return world.deps.views[partition].applied() == end - 1
