"""The owner's side of a partition's store, on RocksDB.

One RocksDB a partition, one column family, keys as in `store_rows`. Each commit is one
WriteBatch, so it is in the store whole or not at all, and in order. RocksDB's own WAL
is not synced to disk: what a power cut takes from its end is folded again from the
log, starting at the applied offset that is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rocksdict import Checkpoint, Rdict, WriteBatch

from cachemind.adapters.doorbell import Doorbell
from cachemind.adapters.rocks_options import (
    RocksMemory,
    RocksRows,
    store_options,
    translated,
)
from cachemind.adapters.store_batch import Batch, batch_of
from cachemind.adapters.store_journal import DEFAULT_CHANGES, Journal
from cachemind.adapters.store_reading import (
    LiveRows,
    read_applied,
    scan_prefix,
)
from cachemind.adapters.store_rows import IDENTITY, JOURNAL, StoreIdentity
from cachemind.core.state import Step
from cachemind.errors import CorruptState, StoreMismatch
from cachemind.types import Namespace, Offset


class RocksStore(LiveRows):
    """`StoreWriter` of one partition. One thread commits; any thread reads."""

    def __init__(
        self,
        path: Path,
        identity: StoreIdentity,
        memory: RocksMemory,
        *,
        journal_changes: int = DEFAULT_CHANGES,
    ) -> None:
        """Open the store at `path`, or make it and its parents.

        Raises: `StoreLocked` where another process owns it, `StoreMismatch` where it
        was folded from another log or by another format, `StoreUnavailable`.
        """
        self._path = path
        self._closed = False
        with translated(path):
            path.mkdir(parents=True, exist_ok=True)
            self._database = Rdict(str(path), store_options(memory, create=True))
        try:
            self._rows = RocksRows(self._database, path)
            self._claim(identity)
            self._journal = Journal(journal_changes, scan_prefix(self._rows, JOURNAL))
            self._applied = read_applied(self._rows)
            self._doorbell = Doorbell(path, owner=True)
        except BaseException:
            self._database.close()
            raise
        self._doorbell.ring(self._applied)

    def rows(self) -> RocksRows:
        """Return the rows of the open database."""
        return self._rows

    def applied(self) -> Offset:
        """Return the offset of the last record folded in; -1 where none."""
        return self._applied

    def fence(self, namespace: Namespace, offset: Offset) -> None:
        """Say that nothing older than `offset` may be served of `namespace`."""
        self._doorbell.fence(namespace, offset)

    def commit(
        self, applied: Offset, steps: Mapping[Namespace, Sequence[Step]]
    ) -> None:
        """Make `steps` and the new applied offset durable, all or nothing.

        Survives the death of the process, not that of the machine (see the module).
        Raises: `StoreUnavailable`; nothing then changed.
        """
        batch = batch_of(self._journal, self._applied, applied, steps)
        self._write(batch)
        self._journal.kept(applied, batch.changes)
        self._applied = applied
        self._doorbell.ring(applied)

    def checkpoint(self, path: Path) -> Offset:
        """Make a consistent copy at `path`, which must not exist; return its offset.

        Hard links where the file system is the same, so cheap in time and space.
        Raises: `StoreUnavailable`.
        """
        with translated(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            Checkpoint(self._database).create_checkpoint(str(path))
        copy = Doorbell(path, owner=True)
        copy.ring(self._applied)
        copy.close()
        return self._applied

    def close(self) -> None:
        """Flush and release the lock; again does nothing."""
        if self._closed:
            return
        self._closed = True
        self._database.close()
        self._doorbell.close()

    def _claim(self, identity: StoreIdentity) -> None:
        raw = self._rows.get(IDENTITY)
        if raw is None:
            with translated(self._path):
                self._database.put(IDENTITY, identity.encode())
        else:
            require_identity(self._path, raw, identity)

    def _write(self, batch: Batch) -> None:
        write = WriteBatch(raw_mode=True)
        for key, value in batch.rows:
            if value is None:
                write.delete(key)
            else:
                write.put(key, value)
        with translated(self._path):
            self._database.write(write)


def require_identity(path: Path, raw: bytes, expected: StoreIdentity | None) -> None:
    """Check a store's identity row; with None, only that this build can read it.

    Raises: `StoreMismatch` naming what differs.
    """
    try:
        found = StoreIdentity.decode(raw)
    except CorruptState as error:
        raise StoreMismatch(f"{path}: {error}; rebuild it from the log") from error
    if expected is not None and found != expected:
        raise StoreMismatch(f"{path}: folded from {found}, expected {expected}")
