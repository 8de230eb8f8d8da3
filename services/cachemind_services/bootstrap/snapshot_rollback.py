"""Takes every namespace of a snapshot back together: one Kafka transaction.

For the operator, on a host of the log. Namespaces that the snapshot does not hold stay
as they are.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Final

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import LogIdentity
from cachemind.adapters.kafka_transaction import KafkaTransactions
from cachemind.adapters.snapshot_catalog import SnapshotCatalog
from cachemind.agents.rehearsal import RollbackPreview
from cachemind.core.identifiers import RANDOM_BYTES, uuid7
from cachemind.core.partitioner import partition_of
from cachemind.core.rollback_report import RollbackReport, Strategy
from cachemind.core.snapshots import SnapshotManifest, find, is_of_log
from cachemind.core.writing import Writing
from cachemind.errors import InvalidRequest, LogUnavailable, SnapshotRefused
from cachemind.events import Envelope, RolledBack
from cachemind.types import (
    ID_BYTES,
    EventId,
    Lsn,
    Namespace,
    Partition,
    Principal,
    TraceId,
    Version,
    WriterId,
)
from cachemind_services.bootstrap.log import codec_of, identify, kafka_of, topics_of
from cachemind_services.bootstrap.past import StoredPast
from cachemind_services.bootstrap.past_files import open_past
from cachemind_services.settings import Settings

FOLD_WAIT_S: Final = 120.0
POLL_S: Final = 0.02
OPERATOR: Final = Principal("operator")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Goal:
    """One namespace of the snapshot, and its past as it is now."""

    namespace: Namespace
    partition: Partition
    target: Version
    past: StoredPast


def rehearse_snapshot(
    settings: Settings, name: str, strategy: Strategy
) -> Sequence[tuple[Namespace, RollbackPreview]]:
    """Return what a rollback to the snapshot would do to each of its namespaces.

    Raises: `InvalidRequest`, `SnapshotRefused`, `LogError`, `StoreError`,
    `RollbackRejected`.
    """
    with _goals(settings, name) as goals:
        return [
            (goal.namespace, goal.past.rehearse(goal.namespace, goal.target, strategy))
            for goal in goals
        ]


def roll_back_to_snapshot(
    settings: Settings, name: str, reason: str
) -> Sequence[tuple[RollbackReport, Partition]]:
    """Append the rollbacks of all namespaces at once; return how each one ended.

    Raises: `InvalidRequest`, `SnapshotRefused` and nothing is appended; `LogError`;
    `LogUnavailable` also where this host's fold does not come to them in time.
    """
    with _goals(settings, name) as goals:
        events = list(_events(goals, reason))
        codec = codec_of(settings)
        records = [
            (event.namespace.encode(), codec.encode(event), ()) for event in events
        ]
        topic, operator = (
            topics_of(settings).wal.name,
            f"{settings.topic_prefix}.operator",
        )
        with closing(
            KafkaTransactions(kafka_of(settings), topic, operator)
        ) as transactions:
            lsns = transactions.append_all(records)
        bodies = [event.body for event in events]
        return [
            (_ended(goal, body, lsn), goal.partition)
            for goal, body, lsn in zip(goals, bodies, lsns, strict=True)
            if isinstance(body, RolledBack)
        ]


@contextmanager
def _goals(settings: Settings, name: str) -> Iterator[Sequence[_Goal]]:
    log = identify(settings)
    manifest = _manifest(settings, log, name)
    with ExitStack() as opened:
        yield [
            _goal(settings, log, namespace, target, opened)
            for namespace, target in sorted(_versions(manifest).items())
        ]


def _goal(
    settings: Settings,
    log: LogIdentity,
    namespace: Namespace,
    target: Version,
    opened: ExitStack,
) -> _Goal:
    past = opened.enter_context(closing(open_past(settings, log, namespace)))
    past.catch_up()
    head = past.history(namespace).head
    if target > head or not past.reaches(namespace, target):
        raise InvalidRequest(
            "--to-snapshot",
            f"nothing leads to version {target} of {namespace}, which is at {head}",
        )
    number = partition_of(namespace.encode(), settings.partitions)
    return _Goal(
        namespace=namespace, partition=Partition(number), target=target, past=past
    )


def _manifest(settings: Settings, log: LogIdentity, name: str) -> SnapshotManifest:
    topics = topics_of(settings)
    with closing(KafkaReader(kafka_of(settings), topics.snapshots.name)) as reader:
        manifest = find(SnapshotCatalog(reader).manifests(), name)
    if manifest is None:
        raise InvalidRequest("--to-snapshot", f"there is no snapshot {name}")
    topic_id = log.topic_ids[topics.wal.name]
    if not is_of_log(manifest, log.cluster_id, topic_id, settings.partitions):
        raise SnapshotRefused(manifest.shown, "is of another log")
    return manifest


def _versions(manifest: SnapshotManifest) -> Mapping[Namespace, Version]:
    return {
        held.namespace: held.version
        for part in manifest.partitions
        for held in part.namespaces
    }


def _events(goals: Sequence[_Goal], reason: str) -> Iterator[Envelope]:
    clock, trace = SystemClock(), TraceId(secrets.token_bytes(ID_BYTES))
    writer = WriterId(f"cli-{socket.gethostname()}-{secrets.token_hex(4)}")
    writing = Writing(writer, OPERATOR, secrets.token_bytes)
    for goal in goals:
        now_ns = clock.now_ns()
        body = RolledBack(
            rollback_id=_new_id(now_ns),
            to_version=goal.target,
            expected_head=-1,
            reason=reason,
        )
        timeline = goal.past.state(goal.namespace).timeline
        yield writing.event(goal.namespace, body, trace, now_ns, timeline)


def _new_id(now_ns: int) -> EventId:
    return uuid7(now_ns, secrets.token_bytes(RANDOM_BYTES))


def _ended(goal: _Goal, body: RolledBack, lsn: Lsn) -> RollbackReport:
    past, namespace = goal.past, goal.namespace
    deadline = time.monotonic() + FOLD_WAIT_S
    while past.catch_up() < lsn.offset:
        if time.monotonic() > deadline:
            raise LogUnavailable(
                f"the rollback is on the log at {lsn} and not folded on this host yet"
            )
        time.sleep(POLL_S)
    report = past.report(namespace, body.rollback_id)
    if report is None:
        raise LogUnavailable(f"the fold passed {lsn} and left no report of it")
    return report
