"""What hosts say of themselves: that they live, and which checkpoints they keep.

The state of one installation: what one host keeps binds how far all may delete the
log. A host that has been silent for long binds nobody any more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cachemind.core.snapshots import SnapshotNamespace
from cachemind.errors import InvalidEvent
from cachemind.types import Lsn, Offset, Partition

KEY_PREFIX: Final = b"host/"
"""No snapshot's id begins like this, so that one topic holds both."""

MOST_NAMESPACES: Final = 10_000
"""In one record: at most a few hundred bytes each, far below Kafka's limit."""

_ID: Final = re.compile(r"[0-9a-f]{8,32}\Z")
_MOST_HOSTNAME: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCheckpoint:
    """A checkpoint on a host's disk. `offset` is that of the last record in it.

    `namespaces` is empty where they are too many to tell.
    """

    partition: Partition
    offset: Offset
    created_at_ns: int
    namespaces: tuple[SnapshotNamespace, ...]

    def __post_init__(self) -> None:
        if self.partition < 0:
            raise InvalidEvent("checkpoint.partition", "must not be negative")
        if self.offset < 0:
            raise InvalidEvent("checkpoint.offset", "must not be negative")

    @property
    def lsn(self) -> Lsn:
        """Return the last record folded into it."""
        return Lsn(self.partition, self.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRecord:
    """What the host `host_id` says at `noted_at_ns`: of itself, or of a checkpoint.

    `noted_at_ns` is in nanoseconds since the Unix epoch (UTC), by the host's clock.
    """

    host_id: str
    hostname: str
    noted_at_ns: int
    cluster_id: str
    topic_id: str
    checkpoint: HostCheckpoint | None

    def __post_init__(self) -> None:
        if not _ID.match(self.host_id):
            raise InvalidEvent("host_id", "must be 8 to 32 lower-case hex characters")
        if len(self.hostname) > _MOST_HOSTNAME:
            raise InvalidEvent("hostname", f"is longer than {_MOST_HOSTNAME}")
        if not 0 <= self.noted_at_ns < 2**63:
            raise InvalidEvent("noted_at_ns", "must be a time since 1970")

    @property
    def key(self) -> bytes:
        """Return the key on the topic: a later record with it replaces this one."""
        own = KEY_PREFIX + self.host_id.encode()
        if self.checkpoint is None:
            return own
        kept = self.checkpoint
        return own + f"/{kept.partition}/{kept.offset}".encode()

    def about(self, checkpoint: HostCheckpoint) -> HostRecord:
        """Return the record of a checkpoint of the same host, without its excess."""
        if len(checkpoint.namespaces) > MOST_NAMESPACES:
            checkpoint = replace(checkpoint, namespaces=())
        return replace(self, checkpoint=checkpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host of one log. `silent_ns` is how long ago it said that it lives."""

    host_id: str
    hostname: str
    seen_at_ns: int
    silent_ns: int
    lives: bool
    checkpoints: tuple[HostCheckpoint, ...]

    @property
    def shown(self) -> str:
        """Return what to call it."""
        return f"{self.hostname} ({self.host_id})"


def is_host_key(key: bytes) -> bool:
    """Return whether a key of the topic of snapshots is a host's."""
    return key.startswith(KEY_PREFIX)


def hosts_of(
    records: Iterable[HostRecord],
    cluster_id: str,
    topic_id: str,
    now_ns: int,
    silence_ns: int,
) -> Sequence[Host]:
    """Return the hosts of this log, by id, with their checkpoints, oldest first.

    One whose last word is longer ago than `silence_ns` does not live. A clock that is
    ahead makes a silence negative: that host has just spoken.
    """
    by_id: dict[str, list[HostRecord]] = {}
    for one in records:
        if (one.cluster_id, one.topic_id) == (cluster_id, topic_id):
            by_id.setdefault(one.host_id, []).append(one)
    return [_host(by_id[name], now_ns, silence_ns) for name in sorted(by_id)]


def _host(records: Sequence[HostRecord], now_ns: int, silence_ns: int) -> Host:
    last = max(records, key=lambda one: one.noted_at_ns)
    silent_ns = now_ns - last.noted_at_ns
    kept = [one.checkpoint for one in records if one.checkpoint is not None]
    return Host(
        host_id=last.host_id,
        hostname=last.hostname,
        seen_at_ns=last.noted_at_ns,
        silent_ns=silent_ns,
        lives=silent_ns < silence_ns,
        checkpoints=tuple(sorted(kept, key=lambda one: one.lsn)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """What to write so that the topic says what a host keeps."""

    publish: Sequence[Lsn]
    retract: Sequence[Lsn]


def telling(kept: Mapping[Partition, Iterable[Offset]], told: Iterable[Lsn]) -> Telling:
    """Return what is kept and not told, and what was told and is kept no more."""
    here = {Lsn(partition, at) for partition, found in kept.items() for at in found}
    known = set(told)
    return Telling(publish=sorted(here - known), retract=sorted(known - here))
