"""Entries of the past that are too many for memory, in a RocksDB of their own.

It holds nothing that anyone needs again: it is not logged, and goes when it is closed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from cachemind.adapters.rocks_options import MIB, RocksMemory
from cachemind.adapters.rocks_table import RocksTable
from cachemind.core import entry_bytes
from cachemind.core.state import Entry
from cachemind.errors import StoreUnavailable
from cachemind.types import ExactKey

CACHE_BYTES: Final = 32 * MIB
_PREFIX: Final = "entries-"
_GONE: Final = b""
_FIRST: Final = b""
_END: Final = b"\xff" * 33
"""Above every key, which has 32 bytes."""


@contextmanager
def scratch_entries(folder: Path) -> Iterator[ScratchEntries]:
    """Yield an empty `Aside` that will be in `folder`; nothing of it stays."""
    found = ScratchEntries(folder)
    try:
        yield found
    finally:
        found.close()


def sweep_scratch(folder: Path) -> None:
    """Remove what killed processes have left in `folder`; nobody may be using it."""
    for left in folder.glob(f"{_PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)


class ScratchEntries:
    """`Aside` on disk. Makes no file before the first entry."""

    def __init__(self, folder: Path) -> None:
        """Touch nothing yet; the folder may be missing."""
        self._folder = folder
        self._path: Path | None = None
        self._table: RocksTable | None = None

    def put(self, entries: Mapping[ExactKey, Entry | None]) -> None:
        """Keep these. Raises: `StoreUnavailable`."""
        self._opened().put(
            (key, _GONE if entry is None else entry_bytes.encode(entry))
            for key, entry in entries.items()
        )

    def get(self, key: ExactKey) -> tuple[Entry | None] | None:
        """Return what was kept at `key`, in a tuple; None where nothing was."""
        if self._table is None:
            return None
        raw = self._table.rows.get(key)
        return None if raw is None else (_entry(raw),)

    def entries(self) -> Iterable[Entry]:
        """Yield the entries that were kept and are not gone, in key order."""
        if self._table is None:
            return
        for _, raw in self._table.rows.scan(_FIRST, _END):
            entry = _entry(raw)
            if entry is not None:
                yield entry

    def close(self) -> None:
        """Remove all of it."""
        if self._table is not None:
            self._table.close()
            self._table = None
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)

    def _opened(self) -> RocksTable:
        if self._table is None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._path = Path(mkdtemp(prefix=_PREFIX, dir=self._folder))
            except OSError as error:
                raise StoreUnavailable(f"{self._folder}: {error}") from error
            memory = RocksMemory(CACHE_BYTES, CACHE_BYTES)
            self._table = RocksTable(self._path, memory, logged=False)
        return self._table


def _entry(raw: bytes) -> Entry | None:
    return None if raw == _GONE else entry_bytes.decode(raw)
