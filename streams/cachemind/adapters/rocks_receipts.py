"""The index of receipts on RocksDB: its owner, and readers in other processes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Final

from rocksdict import AccessType, Rdict, WriteBatch

from cachemind.adapters.doorbell import Doorbell
from cachemind.adapters.receipt_indexing import KEPT, ReceiptIndexing, ReceiptRows
from cachemind.adapters.receipt_rows import IDENTITY, IndexIdentity, Range, Row
from cachemind.adapters.rocks_options import (
    RocksMemory,
    RocksRows,
    store_options,
    translated,
)
from cachemind.adapters.store_reading import NoRows, Rows
from cachemind.errors import StoreMismatch, StoreUnavailable
from cachemind.types import Offset

_CURRENT: Final = "CURRENT"
LATE_S: Final = 0.25
"""A reader looks again after that long, also where the owner rang no bell: what left
RocksDB's log for a file during a catch-up shows with the next one."""


class RocksReceiptIndex(ReceiptIndexing):
    """`ReceiptIndex` in a folder of its own; everything can be made anew."""

    def __init__(
        self,
        path: Path,
        identity: IndexIdentity,
        memory: RocksMemory,
        partitions: int,
        kept: int = KEPT,
    ) -> None:
        """Open the index at `path`, or make it and its parents.

        Raises: `StoreLocked` where another process owns it, `StoreMismatch` where it
        was made from another log or by another format, `StoreUnavailable`.
        """
        self._path = path
        with translated(path):
            path.mkdir(parents=True, exist_ok=True)
            self._database = Rdict(str(path), store_options(memory, create=True))
        try:
            self._rows = RocksRows(self._database, path)
            self._claim(identity)
            super().__init__(partitions, kept)
            self._bell = Doorbell(path, owner=True)
        except BaseException:
            self._database.close()
            raise
        self._lock = Lock()
        self._rung = 0

    def rows(self) -> Rows:
        """Return the rows of the open database."""
        return self._rows

    def write(self, changes: Iterable[Row], gone: Iterable[Range]) -> None:
        """Write and delete, all or nothing. Raises: `StoreUnavailable`."""
        batch = WriteBatch(raw_mode=True)
        for key, value in changes:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        for first, end in gone:
            batch.delete_range(first, end)
        with translated(self._path):
            self._database.write(batch)
        with self._lock:
            self._rung += 1
            self._bell.ring(Offset(self._rung))

    def close(self) -> None:
        """Flush and release the lock."""
        self._database.close()
        self._bell.close()

    def _claim(self, identity: IndexIdentity) -> None:
        found, expected = self._rows.get(IDENTITY), identity.encode()
        if found is None:
            with translated(self._path):
                self._database.put(IDENTITY, expected)
        elif found != expected:
            raise StoreMismatch(f"{self._path}: made from another audit log")


def forget_index(path: Path) -> None:
    """Remove an index, so that it is made anew. Nobody may own it.

    Raises: `StoreUnavailable`.
    """
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreUnavailable(f"{path}: {error}") from error


class RocksReceiptView(ReceiptRows):
    """`ReceiptFinder` that follows the owner's files; empty until `catch_up`."""

    def __init__(
        self, path: Path, memory: RocksMemory, partitions: int, scratch: Path
    ) -> None:
        """Touch nothing yet. RocksDB's own log of this reader goes to `scratch`."""
        super().__init__(partitions)
        self._path = path
        self._memory = memory
        self._scratch = scratch
        self._open: _Secondary | None = None
        self._heard = 0
        self._looked_s = 0.0

    def rows(self) -> Rows:
        """Return the rows as of the last catch-up."""
        return NoRows() if self._open is None else self._open.rows

    def changed(self) -> bool:
        """Return whether the owner seems to have written since `catch_up`."""
        opened = self._open
        if opened is None or time.monotonic() - self._looked_s > LATE_S:
            return True
        return opened.bell.read() != self._heard

    def catch_up(self) -> None:
        """Show what the owner has written since.

        Raises: `StoreUnavailable` where there is no index.
        """
        opened = self._open
        if opened is None or opened.bell.moved():
            self.close()
            opened = self._open = _Secondary(self._path, self._memory, self._scratch)
        # Read first: a ring between here and the catch-up costs one more catch-up.
        self._heard = opened.bell.read()
        opened.catch_up()
        self._looked_s = time.monotonic()

    def close(self) -> None:
        """Release the files."""
        opened, self._open = self._open, None
        if opened is not None:
            opened.close()


class _Secondary:
    def __init__(self, path: Path, memory: RocksMemory, scratch: Path) -> None:
        if not (path / _CURRENT).exists():
            # RocksDB would make the folder that it does not find.
            raise StoreUnavailable(f"{path}: no index of receipts here yet")
        self._path = path
        with translated(scratch):
            self._own = TemporaryDirectory(prefix="cachemind-view-", dir=scratch)
        try:
            self.bell = Doorbell(path, owner=False)
        except BaseException:
            self._own.cleanup()
            raise
        try:
            with translated(path):
                self._database = Rdict(
                    str(path),
                    store_options(memory, create=False),
                    access_type=AccessType.secondary(self._own.name),
                )
        except BaseException:
            self.bell.close()
            self._own.cleanup()
            raise
        self.rows = RocksRows(self._database, path)

    def catch_up(self) -> None:
        with translated(self._path):
            self._database.try_catch_up_with_primary()

    def close(self) -> None:
        self._database.close()
        self.bell.close()
        self._own.cleanup()
