"""Snapshots of small made-up files, for tests that need no store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from cachemind.core.snapshots import (
    NO_EXPIRY,
    SnapshotFile,
    SnapshotManifest,
    SnapshotNamespace,
    SnapshotPartition,
)
from cachemind.types import Namespace, Offset, Partition, Sha256, Timeline, Version

BEGAN_NS = 1_700_000_000_000_000_000
TOPIC = "WAL-topic_id"
Contents = Mapping[str, bytes]


def file_of(name: str, content: bytes) -> SnapshotFile:
    """Return what a manifest says of a file."""
    digest = Sha256(sha256(content).digest())
    return SnapshotFile(name=name, size_bytes=len(content), sha256=digest)


def manifest_of(number: int, *partitions: Contents, name: str = "") -> SnapshotManifest:
    """Return the manifest of snapshot `number`, made that many seconds later."""
    return SnapshotManifest(
        snapshot_id=f"{number:032x}",
        name=name,
        created_at_ns=BEGAN_NS + number * 10**9,
        expires_at_ns=NO_EXPIRY,
        cluster_id="cluster",
        topic_id=TOPIC,
        store_format=1,
        partitions=tuple(
            SnapshotPartition(
                partition=Partition(index),
                offset=Offset(100 * number + index),
                namespaces=(_namespace(number),),
                files=tuple(file_of(*pair) for pair in sorted(contents.items())),
            )
            for index, contents in enumerate(partitions)
        ),
    )


def of_log(manifest: SnapshotManifest, topic_id: str) -> SnapshotManifest:
    """Return the manifest as if it were of another log."""
    return replace(manifest, topic_id=topic_id)


def written(folder: Path, *partitions: Contents) -> Path:
    """Write each partition's files below `folder`, by number; return it."""
    for index, contents in enumerate(partitions):
        place = folder / str(index)
        place.mkdir(parents=True)
        for name, content in contents.items():
            (place / name).write_bytes(content)
    return folder


def _namespace(number: int) -> SnapshotNamespace:
    return SnapshotNamespace(
        namespace=Namespace("alpha"),
        version=Version(number),
        timeline=Timeline(0),
        digest=Sha256(bytes([number % 256]) * 32),
        entries=number,
    )
