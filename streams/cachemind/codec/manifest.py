"""A snapshot's manifest as bytes: Avro single-object encoding.

The same bytes are the value on the topic `snapshots` and the manifest beside shipped
files, so either tells what the other does.
"""

from __future__ import annotations

import json
from functools import cache
from io import BytesIO
from typing import Any, Final

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.read import SchemaResolutionError

from cachemind.codec.framing import (
    SINGLE_OBJECT_BYTES,
    schema_identity,
    single_object_header,
)
from cachemind.core.snapshots import (
    SnapshotFile,
    SnapshotManifest,
    SnapshotNamespace,
    SnapshotPartition,
)
from cachemind.errors import InvalidEvent, UndecodableRecord, UnknownSchema
from cachemind.types import Namespace, Offset, Partition, Sha256, Timeline, Version
from cachemind_schemas.loader import Schema, current_manifest, released_manifests

_CUT: Final = (EOFError, IndexError, MemoryError, TypeError, ValueError, OverflowError)


def encode_manifest(manifest: SnapshotManifest) -> bytes:
    """Return the manifest's record."""
    out = BytesIO()
    out.write(single_object_header(current_manifest().crc64))
    schemaless_writer(out, _parsed(current_manifest()), _plain(manifest))
    return out.getvalue()


def decode_manifest(record: bytes) -> SnapshotManifest:
    """Return the manifest in `record`.

    Raises: `UndecodableRecord`; `UnknownSchema` for a schema that this build lacks.
    """
    writer = _writer(record)
    source = BytesIO(record)
    source.seek(SINGLE_OBJECT_BYTES)
    try:
        found = schemaless_reader(source, _parsed(writer), _parsed(current_manifest()))
    except SchemaResolutionError as error:
        raise UnknownSchema("a manifest of another shape") from error
    except _CUT as error:
        raise UndecodableRecord(f"no manifest ({type(error).__name__})") from error
    if source.tell() != len(record):
        raise UndecodableRecord("bytes follow the manifest")
    try:
        return _manifest(found)
    except InvalidEvent as error:
        raise UndecodableRecord(f"invalid {error.field}") from error


def _writer(record: bytes) -> Schema:
    identity = schema_identity(record)
    for schema in (current_manifest(), *released_manifests()):
        if schema.crc64 == identity:
            return schema
    shown = identity if isinstance(identity, int) else identity[::-1].hex()
    raise UnknownSchema(f"manifest schema {shown}")


@cache
def _parsed(schema: Schema) -> Any:
    return parse_schema(json.loads(schema.text), named_schemas={})


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
                "namespaces": [_fields(each) for each in one.namespaces],
                "files": [_fields(each) for each in one.files],
            }
            for one in manifest.partitions
        ],
    }


def _fields(value: SnapshotFile | SnapshotNamespace) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def _manifest(found: Any) -> SnapshotManifest:
    partitions = tuple(_partition(one) for one in found["partitions"])
    return SnapshotManifest(**{**found, "partitions": partitions})


def _partition(found: Any) -> SnapshotPartition:
    return SnapshotPartition(
        partition=Partition(found["partition"]),
        offset=Offset(found["offset"]),
        namespaces=tuple(
            SnapshotNamespace(
                namespace=Namespace(one["namespace"]),
                version=Version(one["version"]),
                timeline=Timeline(one["timeline"]),
                digest=Sha256(one["digest"]),
                entries=one["entries"],
            )
            for one in found["namespaces"]
        ),
        files=tuple(
            SnapshotFile(
                name=one["name"],
                size_bytes=one["size_bytes"],
                sha256=Sha256(one["sha256"]),
            )
            for one in found["files"]
        ),
    )
