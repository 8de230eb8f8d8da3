"""An open RocksDB that is written to: rows in, whole or piece by piece."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rocksdict import Checkpoint, Rdict, WriteBatch, WriteOptions

from cachemind.adapters.rocks_options import (
    MIB,
    RocksMemory,
    RocksRows,
    store_options,
    translated,
)
from cachemind.adapters.store_rows import Row

PIECE_BYTES: Final = 4 * MIB
"""Of what need not be one write: enough that its cost is the rows' alone."""


class RocksTable:
    """One thread writes, any thread reads."""

    def __init__(self, path: Path, memory: RocksMemory, *, logged: bool = True) -> None:
        """Open the database at `path`, or make it and its parents.

        With `logged` off what is written is durable only after `flush`.
        Raises: `StoreLocked` where another process owns it, `StoreUnavailable`.
        """
        self.path = path
        self._closed = False
        self._options = WriteOptions()
        # The stub calls it a method; it is a property.
        self._options.disable_wal = not logged  # type: ignore[assignment,method-assign]
        with translated(path):
            path.mkdir(parents=True, exist_ok=True)
            self.raw = Rdict(str(path), store_options(memory, create=True))
        self.rows = RocksRows(self.raw, path)

    def write(self, rows: Iterable[Row]) -> None:
        """Write `rows`, all or nothing. Raises: `StoreUnavailable`."""
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in rows:
            if value is None:
                delete(key)
            else:
                put(key, value)
        self._write(batch)

    def put(self, rows: Iterable[Row]) -> None:
        """Write `rows` piece by piece.

        Raises: `StoreUnavailable`; some of them may be there.
        """
        batch = WriteBatch(raw_mode=True)
        for row in rows:
            _add(batch, row)
            if batch.size_in_bytes() >= PIECE_BYTES:
                self._write(batch)
                batch = WriteBatch(raw_mode=True)
        self._write(batch)

    def checkpoint(self, path: Path) -> None:
        """Make a consistent copy at `path`, which must not exist.

        Hard links where the file system is the same, so cheap in time and space.
        Raises: `StoreUnavailable`.
        """
        with translated(self.path):
            path.parent.mkdir(parents=True, exist_ok=True)
            Checkpoint(self.raw).create_checkpoint(str(path))

    def flush(self) -> None:
        """Put all that was written on disk. Raises: `StoreUnavailable`."""
        with translated(self.path):
            self.raw.flush()

    def close(self) -> None:
        """Flush and release the lock; again does nothing."""
        if not self._closed:
            self._closed = True
            self.raw.close()

    def _write(self, batch: WriteBatch) -> None:
        with translated(self.path):
            self.raw.write(batch, self._options)


def _add(batch: WriteBatch, row: Row) -> None:
    key, value = row
    if value is None:
        batch.delete(key)
    else:
        batch.put(key, value)
