"""The snapshots that there are, by the topic that says so.

One record a snapshot, key: its id, value: its manifest; a record without a value says
that it was removed. The topic is compacted, so it stays as small as what is kept.
What hosts say of themselves is there too, see `host_catalog`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Final, Protocol

from cachemind.codec.manifest import decode_manifest, encode_manifest
from cachemind.core.hosts import is_host_key
from cachemind.core.snapshots import SnapshotManifest, newest_first
from cachemind.errors import UndecodableRecord, UnknownSchema
from cachemind.ports import Headers, LogReader
from cachemind.types import Lsn, Partition

log = logging.getLogger(__name__)

APPEND_S: Final = 30.0
_ONLY: Final = Partition(0)


class TombstoneWriter(Protocol):
    """A `LogWriter` of a compacted topic: no value takes back what a key meant."""

    def append(self, key: bytes, value: bytes | None, headers: Headers) -> Future[Lsn]:
        """Return a future of the LSN, as `LogWriter`."""
        ...


class SnapshotCatalog:
    """Reads and, given a writer, changes the topic of snapshots."""

    def __init__(
        self, reader: LogReader, writer: TombstoneWriter | None = None
    ) -> None:
        self._reader = reader
        self._writer = writer

    def manifests(self) -> Sequence[SnapshotManifest]:
        """Return the snapshots that were published and not removed, newest first.

        One that this build cannot read is left out, and said in the log.
        Raises: `LogUnavailable`.
        """
        first, end = self._reader.bounds(_ONLY)
        found: dict[bytes, bytes | None] = {}
        for batch in self._reader.read(_ONLY, first, end):
            found.update(
                {
                    record.key: record.value
                    for record in batch
                    if record.key is not None and not is_host_key(record.key)
                }
            )
        decoded = (
            _decoded(key, value) for key, value in found.items() if value is not None
        )
        return newest_first(one for one in decoded if one is not None)

    def publish(self, manifest: SnapshotManifest) -> Lsn:
        """Return where the manifest is on the topic, once it is durable.

        Raises: `LogUnavailable`, `LogRejected`.
        """
        return self._append(manifest, encode_manifest(manifest))

    def retract(self, manifest: SnapshotManifest) -> Lsn:
        """Say that a snapshot is no more. Raises: `LogUnavailable`, `LogRejected`."""
        return self._append(manifest, None)

    def _append(self, manifest: SnapshotManifest, value: bytes | None) -> Lsn:
        if self._writer is None:
            raise TypeError("this catalog was opened to be read")
        key = manifest.snapshot_id.encode()
        return self._writer.append(key, value, ()).result(APPEND_S)


def _decoded(key: bytes, value: bytes) -> SnapshotManifest | None:
    try:
        return decode_manifest(value)
    except (UndecodableRecord, UnknownSchema) as error:
        log.warning("snapshot %r on the topic: %s", key[:32], error)
        return None
