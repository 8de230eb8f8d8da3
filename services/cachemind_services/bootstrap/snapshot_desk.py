"""What the running materializer does when it is asked: snapshots, and its status.

A snapshot is a checkpoint of every partition, all made on the fold's thread with
nothing folded between them. It is there for others once its manifest is on the topic
of snapshots; then each namespace's own history says that it was taken.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol, TypeVar

from cachemind.adapters.checkpoints import RocksCheckpoints
from cachemind.adapters.kafka_topics import LogIdentity
from cachemind.adapters.rocks_store import RocksStore
from cachemind.adapters.snapshot_catalog import SnapshotCatalog
from cachemind.adapters.snapshot_store import SnapshotStore
from cachemind.adapters.store_rows import FORMAT
from cachemind.agents.status import MaterializerStatus
from cachemind.codec import Codec
from cachemind.core.checkpoint import CheckpointManifest
from cachemind.core.snapshots import (
    NO_EXPIRY,
    SnapshotManifest,
    SnapshotNamespace,
    SnapshotPartition,
    check_name,
    expired,
    find,
    is_of_log,
)
from cachemind.core.writing import Writing
from cachemind.errors import CacheError, InvalidEvent, InvalidRequest
from cachemind.events import SnapshotTaken
from cachemind.ports import Clock, LogWriter
from cachemind.types import (
    ID_BYTES,
    Lsn,
    Offset,
    Partition,
    Principal,
    TraceId,
    WriterId,
)
from cachemind_services.control import Fields, Handler

APPEND_S: Final = 30.0
DAY_NS: Final = 24 * 60 * 60 * 1_000_000_000
MOST_DAYS: Final = 36_500
_PRINCIPAL: Final = Principal("operator")
T = TypeVar("T")


def _nobody_asks() -> None:
    """Do nothing."""


class Fold(Protocol):
    """The running materializer, as far as it is asked for something here."""

    def status(self) -> MaterializerStatus:
        """Return how far each partition is."""
        ...

    async def on_fold_thread(self, do: Callable[[], T]) -> T:
        """Return what `do` returns, called while nothing is being folded."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The two topics that the desk writes to."""

    catalog: SnapshotCatalog
    wal: LogWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskDeps:
    """What the desk works with. `shipped` is where `snapshot_url` leads, if set.

    `connect` opens the topics for one command: most of the time there is none.
    `changed` is called after checkpoints were made or removed.
    """

    log: LogIdentity
    wal_topic: str
    stores: Mapping[Partition, RocksStore]
    checkpoints: Mapping[Partition, RocksCheckpoints]
    connect: Callable[[], AbstractContextManager[Topics]]
    codec: Codec
    clock: Clock
    shipped: SnapshotStore | None
    changed: Callable[[], None] = _nobody_asks


class SnapshotDesk:
    """Answers the commands of the control socket, one at a time."""

    def __init__(self, fold: Fold, deps: DeskDeps) -> None:
        self._fold = fold
        self._deps = deps
        self._turn = asyncio.Lock()
        self._writing = Writing(
            WriterId(f"snapshots-{secrets.token_hex(4)}"),
            _PRINCIPAL,
            secrets.token_bytes,
        )

    def handlers(self) -> Mapping[str, Handler]:
        """Return what answers each command."""
        return {
            "status": self.status,
            "snapshot-create": self._alone(self.create),
            "snapshot-prune": self._alone(self.prune),
        }

    async def status(self, fields: Fields) -> Fields:
        """Tell how far each partition is."""
        del fields
        found = self._fold.status()
        return {
            "ready": found.ready,
            "log_answers": found.log_answers,
            "partitions": {
                str(partition): {
                    "applied": one.applied,
                    "end": one.end,
                    "lag": one.lag,
                    "caught_up": one.caught_up,
                }
                for partition, one in sorted(found.partitions.items())
            },
        }

    async def create(self, fields: Fields) -> Fields:
        """Take a snapshot of all partitions now.

        Raises: `InvalidRequest`; `LogUnavailable`, and then there is none, unless its
        manifest was published and only the namespaces could not be told.
        """
        now_ns = self._deps.clock.now_ns()
        name = _name(fields.get("name"), now_ns)
        expires_at_ns = _expiry(fields.get("retention_days", 0), now_ns)
        only = _namespaces(fields.get("namespaces"))
        async with self._connected() as topics:
            if find(await asyncio.to_thread(self._published, topics), name) is not None:
                raise InvalidRequest("name", f"there is a snapshot {name} already")
            made = await self._fold.on_fold_thread(
                lambda: self._cut(now_ns, name, expires_at_ns)
            )
            manifest = self._manifest(now_ns, name, expires_at_ns, made)
            try:
                await asyncio.to_thread(topics.catalog.publish, manifest)
            except CacheError:
                self._undo(made, now_ns)
                raise
            noted = await asyncio.to_thread(self._note, topics, manifest, only)
        self._deps.changed()
        return {
            "snapshot": name,
            "snapshot_id": manifest.snapshot_id,
            "created_at_ns": now_ns,
            "expires_at_ns": expires_at_ns,
            "size_bytes": manifest.size_bytes,
            "lsns": [str(lsn) for lsn in _lsns(manifest)],
            "namespaces": noted,
        }

    async def prune(self, fields: Fields) -> Fields:
        """Remove what is past its retention, and the snapshot that is named.

        Raises: `InvalidRequest`; `LogUnavailable`, `SnapshotUnavailable`, and then
        asking again goes on from there.
        """
        now_ns, name = self._deps.clock.now_ns(), fields.get("name")
        async with self._connected() as topics:
            published = await asyncio.to_thread(self._published, topics)
            gone = list(expired(published, now_ns))
            if name is not None:
                named = find(published, str(name))
                if named is None:
                    raise InvalidRequest("name", f"there is no snapshot {name}")
                gone += [] if named in gone else [named]
            kept = [one for one in published if one not in gone]
            removed = await asyncio.to_thread(self._remove, topics, gone, kept)
        removed += await self._fold.on_fold_thread(lambda: self._thin(now_ns))
        self._deps.changed()
        swept = await asyncio.to_thread(self._sweep, now_ns)
        return {
            "snapshots": [one.shown for one in gone],
            "checkpoints": removed,
            "objects": swept,
        }

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Topics]:
        opened = ExitStack()
        try:
            yield await asyncio.to_thread(opened.enter_context, self._deps.connect())
        finally:
            await asyncio.to_thread(opened.close)

    def _alone(self, handler: Handler) -> Handler:
        async def alone(fields: Fields) -> Fields:
            async with self._turn:
                return await handler(fields)

        return alone

    # ---- taking one -----------------------------------------------------------------

    def _cut(
        self, now_ns: int, name: str, expires_at_ns: int
    ) -> Sequence[CheckpointManifest | None]:
        """Make every partition's checkpoint; None of one without a record."""
        return [
            self._checkpoint(partition, now_ns, name, expires_at_ns)
            for partition in sorted(self._deps.stores)
        ]

    def _checkpoint(
        self, partition: Partition, now_ns: int, name: str, expires_at_ns: int
    ) -> CheckpointManifest | None:
        store, kept = self._deps.stores[partition], self._deps.checkpoints[partition]
        if store.applied() < 0:
            return None
        for one in kept.manifests():
            if one.offset == store.applied() and one.name:
                # Two snapshots of one moment: it stays as long as either.
                expires_at_ns = _later(one.expires_at_ns, expires_at_ns)
        return kept.create(store, now_ns, name, expires_at_ns)

    def _manifest(
        self,
        now_ns: int,
        name: str,
        expires_at_ns: int,
        made: Sequence[CheckpointManifest | None],
    ) -> SnapshotManifest:
        deps = self._deps
        return SnapshotManifest(
            snapshot_id=secrets.token_hex(16),
            name=name,
            created_at_ns=now_ns,
            expires_at_ns=expires_at_ns,
            cluster_id=deps.log.cluster_id,
            topic_id=deps.log.topic_ids[deps.wal_topic],
            store_format=FORMAT,
            partitions=tuple(
                _nothing_of(Partition(number)) if one is None else one.held
                for number, one in enumerate(made)
            ),
        )

    def _undo(self, made: Sequence[CheckpointManifest | None], now_ns: int) -> None:
        for one in made:
            if one is not None and one.created_at_ns == now_ns:
                self._deps.checkpoints[one.held.partition].remove(one.offset)

    def _note(
        self, topics: Topics, manifest: SnapshotManifest, only: frozenset[str] | None
    ) -> Sequence[str]:
        """Append `SnapshotTaken` to each namespace; return which, once durable."""
        covered = [each for one in manifest.partitions for each in one.namespaces]
        chosen = [e for e in covered if only is None or e.namespace in only]
        waiting = [self._append(topics, manifest, each) for each in chosen]
        for answer in waiting:
            answer.result(APPEND_S)
        return [each.namespace for each in chosen]

    def _append(
        self, topics: Topics, manifest: SnapshotManifest, each: SnapshotNamespace
    ) -> Future[Lsn]:
        now_ns = self._deps.clock.now_ns()
        body = SnapshotTaken(
            snapshot_id=manifest.snapshot_id,
            name=manifest.name,
            lsns=_lsns(manifest),
            version=each.version,
            digest=each.digest,
        )
        trace = TraceId(secrets.token_bytes(ID_BYTES))
        event = self._writing.event(each.namespace, body, trace, now_ns, each.timeline)
        record = self._deps.codec.encode(event)
        return topics.wal.append(each.namespace.encode(), record, ())

    # ---- removing -------------------------------------------------------------------

    def _published(self, topics: Topics) -> Sequence[SnapshotManifest]:
        deps = self._deps
        topic_id = deps.log.topic_ids[deps.wal_topic]
        return [
            one
            for one in topics.catalog.manifests()
            if is_of_log(one, deps.log.cluster_id, topic_id, len(deps.stores))
        ]

    def _remove(
        self,
        topics: Topics,
        gone: Sequence[SnapshotManifest],
        kept: Sequence[SnapshotManifest],
    ) -> int:
        """Remove snapshots here and where they are shipped; return checkpoints gone.

        The word that one is no more comes last, so that it can be asked for again.
        """
        needed = {place for one in kept for place in _lsns(one)}
        removed = 0
        for manifest in gone:
            if self._deps.shipped is not None:
                self._deps.shipped.remove(manifest)
            for lsn in _lsns(manifest):
                if lsn not in needed:
                    removed += self._deps.checkpoints[lsn.partition].remove(lsn.offset)
            topics.catalog.retract(manifest)
        return removed

    def _thin(self, now_ns: int) -> int:
        return sum(len(one.prune(now_ns)) for one in self._deps.checkpoints.values())

    def _sweep(self, now_ns: int) -> int:
        shipped = self._deps.shipped
        return 0 if shipped is None else shipped.sweep(now_ns)


def _nothing_of(partition: Partition) -> SnapshotPartition:
    return SnapshotPartition(
        partition=partition, offset=Offset(-1), namespaces=(), files=()
    )


def _lsns(manifest: SnapshotManifest) -> tuple[Lsn, ...]:
    return tuple(
        Lsn(one.partition, one.offset) for one in manifest.partitions if one.offset >= 0
    )


def _name(given: Any, now_ns: int) -> str:
    """Return the name to use: the moment, where none was given."""
    if not given:
        moment = datetime.fromtimestamp(now_ns / 1e9, UTC)
        return f"{moment:%Y%m%dT%H%M%S.%f}Z"
    try:
        return check_name(str(given))
    except InvalidEvent as error:
        raise InvalidRequest("name", error.problem) from error


def _expiry(days: Any, now_ns: int) -> int:
    if type(days) is not int or not 0 <= days <= MOST_DAYS:
        raise InvalidRequest("retention_days", f"takes whole days, 0 to {MOST_DAYS}")
    return NO_EXPIRY if days == 0 else now_ns + days * DAY_NS


def _namespaces(given: Any) -> frozenset[str] | None:
    if given is None:
        return None
    if not isinstance(given, list):
        raise InvalidRequest("namespaces", "takes a list of names")
    return frozenset(map(str, given))


def _later(one: int, other: int) -> int:
    return NO_EXPIRY if NO_EXPIRY in (one, other) else max(one, other)
