"""What hosts say of themselves and their checkpoints, on the topic of snapshots.

One record a host and one a checkpoint, replaced by key; a record without a value says
that the checkpoint is kept no more. Compaction leaves what is said now.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Final

from cachemind.adapters.snapshot_catalog import APPEND_S, TombstoneWriter
from cachemind.codec.host_record import decode_host_record, encode_host_record
from cachemind.core.hosts import HostRecord, is_host_key
from cachemind.errors import LogUnavailable, UndecodableRecord, UnknownSchema
from cachemind.ports import LogReader
from cachemind.types import Lsn, Partition

log = logging.getLogger(__name__)

_ONLY: Final = Partition(0)


class HostCatalog:
    """Reads and, given a writer, changes what hosts say."""

    def __init__(
        self, reader: LogReader, writer: TombstoneWriter | None = None
    ) -> None:
        self._reader = reader
        self._writer = writer

    def records(self) -> Sequence[HostRecord]:
        """Return what is said now, in the order in which it was said.

        A record that this build cannot read is left out, and said in the log.
        Raises: `LogUnavailable`.
        """
        first, end = self._reader.bounds(_ONLY)
        found: dict[bytes, bytes] = {}
        for batch in self._reader.read(_ONLY, first, end):
            for record in batch:
                if record.key is None or not is_host_key(record.key):
                    continue
                found.pop(record.key, None)
                if record.value is not None:
                    found[record.key] = record.value
        decoded = (_decoded(key, value) for key, value in found.items())
        return [one for one in decoded if one is not None]

    def change(
        self, publish: Iterable[HostRecord], retract: Iterable[HostRecord] = ()
    ) -> None:
        """Return once all that is published or taken back is durable.

        Raises: `LogUnavailable`, and saying it all again is safe; `LogRejected`.
        """
        if self._writer is None:
            raise TypeError("this catalog was opened to be read")
        waiting = [
            self._writer.append(one.key, encode_host_record(one), ()) for one in publish
        ]
        waiting += [self._writer.append(one.key, None, ()) for one in retract]
        for future in waiting:
            _await(future)


def _await(future: Future[Lsn]) -> None:
    try:
        future.result(APPEND_S)
    except FutureTimeoutError as error:
        raise LogUnavailable(f"no acknowledgement in {APPEND_S:.0f} s") from error


def _decoded(key: bytes, value: bytes) -> HostRecord | None:
    try:
        return decode_host_record(value)
    except (UndecodableRecord, UnknownSchema) as error:
        log.warning("host record %r on the topic: %s", key[:64], error)
        return None
