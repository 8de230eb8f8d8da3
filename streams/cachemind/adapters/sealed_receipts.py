"""This host's sealed copy of the topic of receipts.

The body of a sealed record is partition (4 bytes), offset (8), and the exact value of
the record of the topic. Each is in the copy once: what was sealed before a crash and
comes again is told from its offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from struct import Struct
from typing import Final

from cachemind.adapters.sealed_file import (
    SealedFolder,
    create_seal_key,
    read_seal_keys,
)
from cachemind.core.sealing import SealCheck, SealKey
from cachemind.errors import StoreUnavailable
from cachemind.ports import LogRecord
from cachemind.types import Offset, Partition

_PLACE: Final = Struct(">IQ")


class SealedReceipts:
    """Appends receipts to a folder of sealed files; from one thread.

    A key that comes into the folder of keys meanwhile seals what comes after it.
    """

    def __init__(
        self, folder: Path, keys: Path, taken: Mapping[Partition, Offset]
    ) -> None:
        """`taken` is how far each partition is in elsewhere, so likely sealed as well.

        Makes a key where there is none. Raises: `AuditBroken` where the copy does not
        hold; `StoreLocked`, `StoreUnavailable`, `KeyRefused`, `KeyUnavailable`.
        """
        self._keys_folder = keys
        if not read_seal_keys(keys):
            create_seal_key(keys)
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StoreUnavailable(f"{folder}: {error.strerror}") from error
        self._folder = folder
        self._keys = read_seal_keys(keys)
        self._seen = self._keys_changed()
        self._next = dict(next_offsets(folder, self._keys, taken))
        self._sealing = SealedFolder(folder, self._keys)

    def seal(self, records: Sequence[LogRecord]) -> None:
        """Return once all of them are sealed, on disk.

        Raises: `StoreUnavailable`: the folder must then be opened anew.
        """
        fresh = [
            record
            for record in records
            if record.lsn.offset >= self._next.get(record.lsn.partition, 0)
        ]
        if not fresh:
            return
        self._take_new_key()
        self._sealing.append_all(list(map(_body, fresh)))
        for record in fresh:
            self._next[record.lsn.partition] = Offset(record.lsn.offset + 1)

    def close(self) -> None:
        """Leave the folder."""
        self._sealing.close()

    def _take_new_key(self) -> None:
        seen = self._keys_changed()
        if seen == self._seen:
            return
        self._seen = seen
        keys = read_seal_keys(self._keys_folder)
        if keys[-1].key_id != self._keys[-1].key_id:
            self._sealing.close()
            self._keys = keys
            self._sealing = SealedFolder(self._folder, keys)

    def _keys_changed(self) -> int:
        return self._keys_folder.stat().st_mtime_ns


def next_offsets(
    folder: Path, keys: Sequence[SealKey], taken: Mapping[Partition, Offset]
) -> Mapping[Partition, Offset]:
    """Return the offset after the last one sealed, of each partition in the copy.

    Looks through the files from the newest on, only as far as a partition of `taken`
    that has records was not met. Raises: `StoreUnavailable`.
    """
    ring = {key.key_id: key for key in keys}
    found: dict[Partition, Offset] = {}
    missing = {number for number, offset in taken.items() if offset > 0} or set(taken)
    for path in sorted(folder.glob("*.seal"), reverse=True):
        newest: dict[Partition, Offset] = {}
        for number, offset in _places(path, ring):
            newest[number] = Offset(offset + 1)
        found = {**newest, **found}
        if missing <= found.keys():
            break
    return found


def _places(
    path: Path, ring: Mapping[bytes, SealKey]
) -> Iterator[tuple[Partition, int]]:
    try:
        with path.open("rb") as file:
            for record in SealCheck(file.read, ring).records():
                number, offset = _PLACE.unpack_from(record.body)
                yield Partition(number), offset
    except OSError as error:
        raise StoreUnavailable(f"{path}: {error.strerror}") from error


def _body(record: LogRecord) -> bytes:
    return _PLACE.pack(record.lsn.partition, record.lsn.offset) + (record.value or b"")
