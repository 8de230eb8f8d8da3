"""What a snapshot is: one consistent cut of all partitions, as a manifest.

A snapshot is the checkpoints of every WAL partition that were made back to back, the
log they belong to, and the hash of each of their files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cachemind.errors import InvalidEvent
from cachemind.types import (
    HASH_BYTES,
    Namespace,
    Offset,
    Partition,
    Sha256,
    Timeline,
    Version,
    check_namespace,
)

SNAPSHOT_ID_CHARS: Final = 32
NO_EXPIRY: Final = 0
_HEX: Final = frozenset("0123456789abcdef")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_FILE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFile:
    """One file of a checkpoint. `name` is inside of its folder, never a path."""

    name: str
    size_bytes: int
    sha256: Sha256

    def __post_init__(self) -> None:
        if not _FILE.match(self.name):
            raise InvalidEvent("files.name", "must be a plain file name")
        if self.size_bytes < 0:
            raise InvalidEvent("files.size_bytes", "must not be negative")
        if len(self.sha256) != HASH_BYTES:
            raise InvalidEvent("files.sha256", f"must be {HASH_BYTES} bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotNamespace:
    """How far one namespace is in the snapshot. `digest` is its state digest."""

    namespace: Namespace
    version: Version
    timeline: Timeline
    digest: Sha256
    entries: int

    def __post_init__(self) -> None:
        check_namespace(self.namespace)
        if len(self.digest) != HASH_BYTES:
            raise InvalidEvent("namespaces.digest", f"must be {HASH_BYTES} bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPartition:
    """One partition's checkpoint. `offset` is that of the last record in it, or -1."""

    partition: Partition
    offset: Offset
    namespaces: tuple[SnapshotNamespace, ...]
    files: tuple[SnapshotFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotManifest:
    """One snapshot, whole.

    `name` is the operator's, or empty. Times are nanoseconds since the Unix epoch
    (UTC); `expires_at_ns` is `NO_EXPIRY` for one that only an operator removes.
    `store_format` is that of the store's rows.
    """

    snapshot_id: str
    name: str
    created_at_ns: int
    expires_at_ns: int
    cluster_id: str
    topic_id: str
    store_format: int
    partitions: tuple[SnapshotPartition, ...]

    def __post_init__(self) -> None:
        if len(self.snapshot_id) != SNAPSHOT_ID_CHARS or not _HEX.issuperset(
            self.snapshot_id
        ):
            raise InvalidEvent("snapshot_id", "must be 32 lower-case hex characters")
        if self.name:
            check_name(self.name)
        if not 0 <= self.created_at_ns < 2**63 or self.expires_at_ns < 0:
            raise InvalidEvent("created_at_ns", "must be a time since 1970")
        numbers = [one.partition for one in self.partitions]
        if not numbers or numbers != list(range(len(numbers))):
            raise InvalidEvent("partitions", "must be 0, 1, 2 ... without a gap")

    @property
    def shown(self) -> str:
        """Return what to call it: its name, or its id where it has none."""
        return self.name or self.snapshot_id

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all its files."""
        return sum(file.size_bytes for file in files_of(self))


def check_name(text: str) -> str:
    """Return `text` as a snapshot's name, such as `v1.2.0`.

    Raises: `InvalidEvent` naming the field `name`.
    """
    if not _NAME.match(text):
        raise InvalidEvent(
            "name", "must be 1 to 128 of A-Z a-z 0-9 . _ - and start with A-Z a-z 0-9"
        )
    return text


def files_of(manifest: SnapshotManifest) -> Iterable[SnapshotFile]:
    """Yield every file of every partition."""
    for one in manifest.partitions:
        yield from one.files


def is_of_log(
    manifest: SnapshotManifest, cluster_id: str, topic_id: str, partitions: int
) -> bool:
    """Return whether a snapshot was made of this log, with these partitions."""
    return (
        manifest.cluster_id == cluster_id
        and manifest.topic_id == topic_id
        and len(manifest.partitions) == partitions
    )


def newest_first(manifests: Iterable[SnapshotManifest]) -> Sequence[SnapshotManifest]:
    """Return the manifests, the one made last first."""
    return sorted(
        manifests, key=lambda one: (one.created_at_ns, one.snapshot_id), reverse=True
    )


def expired(
    manifests: Iterable[SnapshotManifest], now_ns: int
) -> Sequence[SnapshotManifest]:
    """Return the manifests whose own retention is over."""
    return [
        one
        for one in manifests
        if one.expires_at_ns != NO_EXPIRY and one.expires_at_ns <= now_ns
    ]


def find(manifests: Iterable[SnapshotManifest], wanted: str) -> SnapshotManifest | None:
    """Return the newest snapshot with this name or id, None where there is none."""
    for one in newest_first(manifests):
        if wanted in (one.name, one.snapshot_id):
            return one
    return None
