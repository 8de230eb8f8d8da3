"""A host's record on the topic of snapshots as bytes: Avro single-object encoding."""

from __future__ import annotations

from typing import Any, Final

from cachemind.codec.manifest import fields_of, namespace_of
from cachemind.codec.single_object import SingleObject
from cachemind.core.hosts import HostCheckpoint, HostRecord
from cachemind.errors import InvalidEvent, UndecodableRecord
from cachemind.types import Offset, Partition

_RECORDS: Final = SingleObject("hosts", "host's record")


def encode_host_record(record: HostRecord) -> bytes:
    """Return the record's bytes."""
    kept = record.checkpoint
    return _RECORDS.encode(
        {
            "host_id": record.host_id,
            "hostname": record.hostname,
            "noted_at_ns": record.noted_at_ns,
            "cluster_id": record.cluster_id,
            "topic_id": record.topic_id,
            "checkpoint": None if kept is None else _plain(kept),
        }
    )


def decode_host_record(raw: bytes) -> HostRecord:
    """Return the record in `raw`.

    Raises: `UndecodableRecord`; `UnknownSchema` for a schema that this build lacks.
    """
    found = _RECORDS.decode(raw)
    try:
        kept = found["checkpoint"]
        checkpoint = None if kept is None else _checkpoint(kept)
        return HostRecord(**{**found, "checkpoint": checkpoint})
    except InvalidEvent as error:
        raise UndecodableRecord(f"invalid {error.field}") from error


def _plain(kept: HostCheckpoint) -> dict[str, Any]:
    return {
        "partition": kept.partition,
        "offset": kept.offset,
        "created_at_ns": kept.created_at_ns,
        "namespaces": [fields_of(one) for one in kept.namespaces],
    }


def _checkpoint(found: Any) -> HostCheckpoint:
    return HostCheckpoint(
        partition=Partition(found["partition"]),
        offset=Offset(found["offset"]),
        created_at_ns=found["created_at_ns"],
        namespaces=tuple(map(namespace_of, found["namespaces"])),
    )
