"""Records as aiokafka reads them, whatever a producer may have written.

The protocol calls a header's name a string, and neither brokers nor producers in C or
Go hold anybody to that. aiokafka gives up on such a record, for ever: one of them
would end the consumer of every topic that it reads. So would a batch that becomes too
large when it is unpacked: one record is delivered in its place, which says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from aiokafka.consumer import fetcher  # type: ignore[import-untyped] # ships no types
from aiokafka.errors import CorruptRecordException  # type: ignore[import-untyped]
from aiokafka.record import default_records  # type: ignore[import-untyped]
from aiokafka.record.default_records import (  # type: ignore[import-untyped]
    _DefaultRecordBatchPy,
    _DefaultRecordPy,
)
from aiokafka.record.memory_records import (  # type: ignore[import-untyped]
    MemoryRecords,
)

from cachemind.agents.unpacking import fits_unpacked

TOO_LARGE: Final = "cachemind-too-large"
"""The header of what is delivered in the place of a batch that is not unpacked."""

_LENGTH_AT: Final = 8
_BEFORE_LENGTH: Final = 12
"""Of a batch: its first offset, then its length without these twelve bytes."""


def read_any_header() -> None:
    """Have aiokafka's consumers read such records; a second time changes nothing."""
    fetcher.MemoryRecords = _Records


class _Records:
    """The batches of a fetch, each with its bytes at hand."""

    def __init__(self, fetched: bytes) -> None:
        self._fetched = fetched
        self._records = MemoryRecords(fetched)
        self._at = 0

    def size_in_bytes(self) -> int:
        return len(self._fetched)

    def has_next(self) -> bool:
        return bool(self._records.has_next())

    def next_batch(self) -> _Batch:
        begin, length_at = self._at, self._at + _LENGTH_AT
        length = int.from_bytes(self._fetched[length_at : self._at + _BEFORE_LENGTH])
        self._at += _BEFORE_LENGTH + length
        raw = memoryview(self._fetched)[begin : self._at]
        return _Batch(self._records.next_batch(), raw)


class _Batch:
    """A batch as aiokafka reads it, read once more where a name is the trouble."""

    def __init__(self, batch: Any, raw: memoryview) -> None:
        self._batch = batch
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        # Of a marker that a transaction ends with, which has no headers.
        return next(self._batch)

    def __iter__(self) -> Iterator[Any]:
        packed = self._raw[_DefaultRecordBatchPy.HEADER_STRUCT.size :]
        if not fits_unpacked(self._batch.compression_type, packed):
            yield self._instead()
            return
        read = 0
        try:
            for record in self._batch:
                yield record
                read += 1
        except (UnicodeDecodeError, CorruptRecordException):
            # Aiokafka's own reader in Python calls it corrupt.
            yield from islice(_Lenient(self._raw), read, None)

    def _instead(self) -> Any:
        """Return a record without key and value, where the batch's last one is."""
        batch = self._batch
        said = f"records {batch.base_offset} to {batch.next_offset - 1}, unpacked"
        headers = [(TOO_LARGE, said.encode())]
        last, kind = batch.next_offset - 1, batch.timestamp_type
        return _DefaultRecordPy(last, batch.max_timestamp, kind, None, None, headers)


class _Lenient(_DefaultRecordBatchPy):  # type: ignore[misc] # untyped
    """What cannot be decoded of a name is shown as `\\xff`."""

    _pos: int

    def _read_msg(self, decode_varint: Any = default_records.decode_varint) -> Any:
        buffer, pos = self._buffer, self._pos

        def number() -> int:
            nonlocal pos
            found, pos = decode_varint(buffer, pos)
            return int(found)

        def text() -> bytes | None:
            nonlocal pos
            length = number()
            if length < 0:
                return None
            pos += length
            return bytes(buffer[pos - length : pos])

        end = number() + pos
        pos += 1  # attributes, of which there are none yet
        timestamp, offset = self.first_timestamp + number(), self.base_offset + number()
        if self.timestamp_type == self.LOG_APPEND_TIME:
            timestamp = self.max_timestamp
        key, value = text(), text()
        headers = [
            ((text() or b"").decode("utf-8", "backslashreplace"), text())
            for _ in range(number())
        ]
        if pos != end:
            raise CorruptRecordException(f"a record ends at {pos}, not at {end}")
        self._pos = end
        kind = self.timestamp_type
        return _DefaultRecordPy(offset, timestamp, kind, key, value, headers)
