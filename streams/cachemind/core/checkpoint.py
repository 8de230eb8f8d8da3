"""A checkpoint's manifest: what one kept copy of a partition's store holds.

As JSON, so that an operator can read it. One manifest has one encoding.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cachemind.core.canonical import canonical
from cachemind.core.snapshots import (
    NO_EXPIRY,
    SnapshotFile,
    SnapshotNamespace,
    SnapshotPartition,
    check_name,
)
from cachemind.errors import CorruptState, InvalidEvent
from cachemind.types import (
    Namespace,
    Offset,
    Partition,
    Sha256,
    Timeline,
    Version,
)

FORMAT: Final = 1
_WHAT: Final = "checkpoint manifest"
_WRONG: Final = (KeyError, TypeError, ValueError, RecursionError, InvalidEvent)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointManifest:
    """One checkpoint. `name` is the operator's, or empty.

    Times are nanoseconds since the Unix epoch (UTC); `expires_at_ns` is of a named one
    and `NO_EXPIRY` where only an operator removes it. `store_format` is that of the
    store's rows.
    """

    cluster_id: str
    topic_id: str
    store_format: int
    created_at_ns: int
    name: str
    expires_at_ns: int
    held: SnapshotPartition

    @property
    def offset(self) -> Offset:
        """Return the offset of the last record folded into it, -1 for none."""
        return self.held.offset

    def namespace(self, namespace: Namespace) -> SnapshotNamespace | None:
        """Return how far `namespace` is in it, None where it is not in it."""
        for one in self.held.namespaces:
            if one.namespace == namespace:
                return one
        return None


def encode_checkpoint(manifest: CheckpointManifest) -> bytes:
    """Return the manifest as JSON."""
    held = manifest.held
    return canonical(
        {
            "format": FORMAT,
            "cluster_id": manifest.cluster_id,
            "topic_id": manifest.topic_id,
            "store_format": manifest.store_format,
            "created_at_ns": manifest.created_at_ns,
            "name": manifest.name,
            "expires_at_ns": manifest.expires_at_ns,
            "partition": held.partition,
            "offset": held.offset,
            "namespaces": [_namespace(one) for one in held.namespaces],
            "files": [_file(one) for one in held.files],
        }
    )


def decode_checkpoint(raw: bytes) -> CheckpointManifest:
    """Return the manifest in `raw`. Raises: `CorruptState`."""
    try:
        found = json.loads(raw)
        if found["format"] != FORMAT:
            raise CorruptState(_WHAT, f"format {found['format']!r} is not known here")
        return _manifest(found)
    except _WRONG as error:
        raise CorruptState(_WHAT, f"cannot be read ({type(error).__name__})") from error


def _manifest(found: Mapping[str, Any]) -> CheckpointManifest:
    manifest = CheckpointManifest(
        cluster_id=_text(found["cluster_id"]),
        topic_id=_text(found["topic_id"]),
        store_format=_number(found["store_format"]),
        created_at_ns=_number(found["created_at_ns"]),
        name=_text(found["name"]),
        expires_at_ns=_number(found["expires_at_ns"]),
        held=SnapshotPartition(
            partition=Partition(_number(found["partition"])),
            offset=Offset(_number(found["offset"])),
            namespaces=tuple(map(_namespace_of, found["namespaces"])),
            files=tuple(map(_file_of, found["files"])),
        ),
    )
    if manifest.name:
        check_name(manifest.name)
    return manifest


def _namespace(one: SnapshotNamespace) -> Mapping[str, object]:
    return {
        "namespace": one.namespace,
        "version": one.version,
        "timeline": one.timeline,
        "digest": one.digest.hex(),
        "entries": one.entries,
    }


def _namespace_of(found: Mapping[str, Any]) -> SnapshotNamespace:
    return SnapshotNamespace(
        namespace=Namespace(_text(found["namespace"])),
        version=Version(_number(found["version"])),
        timeline=Timeline(_number(found["timeline"])),
        digest=Sha256(bytes.fromhex(_text(found["digest"]))),
        entries=_number(found["entries"]),
    )


def _file(one: SnapshotFile) -> Mapping[str, object]:
    return {
        "name": one.name,
        "size_bytes": one.size_bytes,
        "sha256": one.sha256.hex(),
    }


def _file_of(found: Mapping[str, Any]) -> SnapshotFile:
    return SnapshotFile(
        name=_text(found["name"]),
        size_bytes=_number(found["size_bytes"]),
        sha256=Sha256(bytes.fromhex(_text(found["sha256"]))),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not text")
    return value


def _number(value: object) -> int:
    if type(value) is not int:
        raise TypeError("not a whole number")
    return value


def is_permanent(manifest: CheckpointManifest, now_ns: int) -> bool:
    """Return whether an operator's name keeps the checkpoint at `now_ns`."""
    if not manifest.name:
        return False
    return manifest.expires_at_ns == NO_EXPIRY or now_ns < manifest.expires_at_ns
