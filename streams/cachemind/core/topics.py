"""The topics: what each must be, and what is wrong with one that exists."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cachemind.errors import TopicMisconfigured

DEFAULT_PREFIX: Final = "cachemind"
MAX_RECORD_BYTES: Final = 4 * 1024 * 1024
"""Largest record batch the topics take: an entry with a very long answer."""

MAX_DEAD_LETTER_BYTES: Final = MAX_RECORD_BYTES + 64 * 1024
"""The largest record and our headers that say why it is there."""

DAY_MS: Final = 24 * 60 * 60 * 1000
FOREVER_MS: Final = -1
_ABSENT: Final = "(not set)"
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,200}\Z")
_GRANTS_OF: Final = frozenset({"requests", "replies"})


HOUR_MS: Final = 60 * 60 * 1000
_SMALL: Final = {
    # Kafka never compacts the segment that is written to, by default 7 days or 1 GB.
    "segment.ms": str(HOUR_MS),
    "segment.bytes": str(16 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
    # Who reads it reads all of it at once, in far less.
    "delete.retention.ms": str(HOUR_MS),
}


class Mode(StrEnum):
    """How much a topic must withstand: a laptop's restart, or a lost broker."""

    DEVELOPMENT = "development"
    PRODUCTION = "production"


class Cleanup(StrEnum):
    """Kafka's `cleanup.policy`."""

    DELETE = "delete"
    COMPACT = "compact"
    COMPACT_AND_DELETE = "compact,delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """What a topic must be.

    `retention_ms` is set at creation only: it is the operator's afterwards. -1 is
    for ever. `replication_factor` and `min_insync_replicas` are lower limits.
    """

    name: str
    partitions: int
    cleanup: Cleanup
    retention_ms: int
    max_message_bytes: int
    replication_factor: int
    min_insync_replicas: int
    allow_unclean_election: bool

    def settings(self) -> dict[str, str]:
        """Return the configuration to create the topic with, in Kafka's words."""
        return {
            "cleanup.policy": str(self.cleanup),
            "retention.ms": str(self.retention_ms),
            "max.message.bytes": str(self.max_message_bytes),
            "min.insync.replicas": str(self.min_insync_replicas),
            "unclean.leader.election.enable": "false",
            **({} if self.cleanup is Cleanup.DELETE else _SMALL),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTopic:
    """What a topic is: counts from its metadata, `settings` from its configuration.

    `replication_factor` is the smallest one of its partitions.
    """

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """Every topic of one installation."""

    requests: TopicSpec
    answers: TopicSpec
    replies: TopicSpec
    wal: TopicSpec
    snapshots: TopicSpec
    audit: TopicSpec
    audit_cuts: TopicSpec
    dlq: TopicSpec

    def all(self) -> tuple[TopicSpec, ...]:
        """Return every topic's specification."""
        return (
            self.requests,
            self.answers,
            self.replies,
            self.wal,
            self.snapshots,
            self.audit,
            self.audit_cuts,
            self.dlq,
        )


def topics(partitions: int, mode: Mode, prefix: str = DEFAULT_PREFIX) -> Topics:
    """Return the topics of an installation with `partitions` WAL partitions.

    Audit has as many as the WAL, so that a receipt is in the partition of the
    record that it is about; answers as many as requests, for the same reason.
    """
    if partitions < 1:
        raise ValueError(f"a topic has at least one partition, got {partitions}")
    _check_prefix(prefix)

    def spec(
        name: str,
        count: int,
        retention_ms: int,
        cleanup: Cleanup = Cleanup.DELETE,
        max_message_bytes: int = MAX_RECORD_BYTES,
    ) -> TopicSpec:
        safe = mode is Mode.PRODUCTION
        return TopicSpec(
            name=f"{prefix}.{name}",
            partitions=count,
            cleanup=cleanup,
            retention_ms=retention_ms,
            max_message_bytes=max_message_bytes,
            # Two in-sync copies of three: an acknowledged record outlives any one
            # broker, and appends go on while one is away.
            replication_factor=3 if safe else 1,
            min_insync_replicas=2 if safe else 1,
            allow_unclean_election=not safe,
        )

    return Topics(
        requests=spec("requests", partitions, DAY_MS),
        answers=spec("answers", partitions, DAY_MS, Cleanup.COMPACT_AND_DELETE),
        replies=spec("replies", partitions, DAY_MS),
        wal=spec("wal", partitions, FOREVER_MS),
        snapshots=spec("snapshots", 1, FOREVER_MS, Cleanup.COMPACT),
        audit=spec("audit", partitions, FOREVER_MS),
        audit_cuts=spec("audit.cuts", 1, FOREVER_MS),
        dlq=spec("dlq", 1, 30 * DAY_MS, max_message_bytes=MAX_DEAD_LETTER_BYTES),
    )


def _check_prefix(prefix: str) -> None:
    if not _NAME.match(prefix):
        raise ValueError("a topic prefix is 1 to 200 of a-z A-Z 0-9 . _ -")
    if not _GRANTS_OF.isdisjoint(prefix.split(".")[1:]):
        # Its topics would be named as grants of the installation before that part.
        raise ValueError("a topic prefix has no part that is requests or replies")


def check(spec: TopicSpec, found: FoundTopic) -> Sequence[TopicMisconfigured]:
    """Return every way in which `found` would lose, reorder or refuse events.

    Numbers above a lower limit are fine, and so is any retention.
    """
    wrong = _check_counts(spec, found)
    policy = _policy(found.settings.get("cleanup.policy"))
    if policy != str(spec.cleanup):
        wrong.append(_fact(spec, "cleanup.policy", str(spec.cleanup), policy))
    wrong += _check_limits(spec, found)
    unclean = found.settings.get("unclean.leader.election.enable", _ABSENT)
    if not spec.allow_unclean_election and unclean != "false":
        wrong.append(_fact(spec, "unclean.leader.election.enable", "false", unclean))
    return wrong


def _check_counts(spec: TopicSpec, found: FoundTopic) -> list[TopicMisconfigured]:
    wrong = []
    if found.partitions != spec.partitions:
        # More partitions would send a namespace's events to another one.
        expected, actual = str(spec.partitions), str(found.partitions)
        wrong.append(_fact(spec, "partitions", expected, actual))
    if found.replication_factor < spec.replication_factor:
        expected = f"at least {spec.replication_factor}"
        actual = str(found.replication_factor)
        wrong.append(_fact(spec, "replication.factor", expected, actual))
    return wrong


def _check_limits(spec: TopicSpec, found: FoundTopic) -> list[TopicMisconfigured]:
    wrong = []
    for setting, lowest in (
        ("min.insync.replicas", spec.min_insync_replicas),
        ("max.message.bytes", spec.max_message_bytes),
    ):
        actual = found.settings.get(setting, _ABSENT)
        if not actual.isdecimal() or int(actual) < lowest:
            wrong.append(_fact(spec, setting, f"at least {lowest}", actual))
    in_sync = found.settings.get("min.insync.replicas", "")
    if in_sync.isdecimal() and int(in_sync) > found.replication_factor:
        # Kafka would refuse every append with acks=all.
        expected = f"at most the replication factor {found.replication_factor}"
        wrong.append(_fact(spec, "min.insync.replicas", expected, in_sync))
    return wrong


def _policy(found: str | None) -> str:
    """Return a list-valued policy in one spelling: `delete, compact` sorted."""
    if found is None:
        return _ABSENT
    return ",".join(sorted(part.strip() for part in found.split(",")))


def _fact(
    spec: TopicSpec, setting: str, expected: str, found: str
) -> TopicMisconfigured:
    return TopicMisconfigured(spec.name, setting, expected, found)
