"""A snapshot's manifest as bytes: Avro single-object encoding.

The same bytes are the value on the topic `snapshots` and the manifest beside shipped
files, so either tells what the other does.
"""

from __future__ import annotations

from typing import Any, Final

from cachemind.codec.single_object import SingleObject
from cachemind.core.snapshots import (
    SnapshotFile,
    SnapshotManifest,
    SnapshotNamespace,
    SnapshotPartition,
)
from cachemind.errors import InvalidEvent, UndecodableRecord
from cachemind.types import Namespace, Offset, Partition, Sha256, Timeline, Version

_RECORDS: Final = SingleObject("manifests", "manifest")


def encode_manifest(manifest: SnapshotManifest) -> bytes:
    """Return the manifest's record."""
    return _RECORDS.encode(_plain(manifest))


def decode_manifest(record: bytes) -> SnapshotManifest:
    """Return the manifest in `record`.

    Raises: `UndecodableRecord`; `UnknownSchema` for a schema that this build lacks.
    """
    found = _RECORDS.decode(record)
    try:
        return _manifest(found)
    except InvalidEvent as error:
        raise UndecodableRecord(f"invalid {error.field}") from error


def _plain(manifest: SnapshotManifest) -> dict[str, Any]:
    return {
        "snapshot_id": manifest.snapshot_id,
        "name": manifest.name,
        "created_at_ns": manifest.created_at_ns,
        "expires_at_ns": manifest.expires_at_ns,
        "cluster_id": manifest.cluster_id,
        "topic_id": manifest.topic_id,
        "store_format": manifest.store_format,
        "partitions": [
            {
                "partition": one.partition,
                "offset": one.offset,
                "namespaces": [fields_of(each) for each in one.namespaces],
                "files": [fields_of(each) for each in one.files],
            }
            for one in manifest.partitions
        ],
    }


def fields_of(value: SnapshotFile | SnapshotNamespace) -> dict[str, Any]:
    """Return the fields of a value whose names are those of its record."""
    return {name: getattr(value, name) for name in value.__slots__}


def _manifest(found: Any) -> SnapshotManifest:
    partitions = tuple(_partition(one) for one in found["partitions"])
    return SnapshotManifest(**{**found, "partitions": partitions})


def _partition(found: Any) -> SnapshotPartition:
    return SnapshotPartition(
        partition=Partition(found["partition"]),
        offset=Offset(found["offset"]),
        namespaces=tuple(map(namespace_of, found["namespaces"])),
        files=tuple(
            SnapshotFile(
                name=one["name"],
                size_bytes=one["size_bytes"],
                sha256=Sha256(one["sha256"]),
            )
            for one in found["files"]
        ),
    )


def namespace_of(found: Any) -> SnapshotNamespace:
    """Return how far a namespace is. Raises: `InvalidEvent`."""
    return SnapshotNamespace(
        namespace=Namespace(found["namespace"]),
        version=Version(found["version"]),
        timeline=Timeline(found["timeline"]),
        digest=Sha256(found["digest"]),
        entries=found["entries"],
    )
