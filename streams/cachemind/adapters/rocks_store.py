"""The owner's side of a partition's store, on RocksDB.

One RocksDB a partition, one column family, keys as in `store_rows`. Each commit is one
WriteBatch, so it is in the store whole or not at all, and in order. RocksDB's own WAL
is not synced to disk: what a power cut takes from its end is folded again from the
log, starting at the applied offset that is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from cachemind.adapters.doorbell import Doorbell
from cachemind.adapters.rocks_database import RocksDatabase
from cachemind.adapters.rocks_options import RocksMemory, RocksRows
from cachemind.adapters.rocks_shadow import RocksShadow
from cachemind.adapters.store_journal import DEFAULT_CHANGES
from cachemind.adapters.store_pruning import report_rows, request_rows, version_rows
from cachemind.adapters.store_reading import LiveRows
from cachemind.adapters.store_rows import StoreIdentity
from cachemind.adapters.store_swap import begin, forget_before, settle
from cachemind.core.state import Step
from cachemind.types import Namespace, Offset, Version


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
        self._shadow: RocksShadow | None = None
        self._open = partial(
            RocksDatabase,
            identity=identity,
            memory=memory,
            journal_changes=journal_changes,
        )
        self._database = self._open(path)
        try:
            self._doorbell = Doorbell(path, owner=True)
        except BaseException:
            self._database.close()
            raise
        self._doorbell.ring(self.applied())

    def rows(self) -> RocksRows:
        """Return the rows of the open database."""
        return self._database.rows

    def applied(self) -> Offset:
        """Return the offset of the last record folded in; -1 where none."""
        return self._database.applied

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
        self._database.commit(applied, steps)
        self._doorbell.ring(applied)

    def forget_versions(self, namespace: Namespace, below: Version, limit: int) -> int:
        """Delete the rows of the oldest versions below `below`; return how many."""
        rows, gone = version_rows(self.rows(), namespace, below, limit)
        if rows:
            self._database.write(rows)
        return gone

    def forget_requests(self, namespace: Namespace, limit: int) -> int:
        """Delete requests that nobody looks for any more; return how many."""
        gone = request_rows(self.rows(), namespace, limit)
        if gone:
            self._database.write(gone)
        return len(gone)

    def forget_reports(
        self, horizons: Mapping[Namespace, Version], after: bytes, limit: int
    ) -> tuple[bytes | None, int]:
        """Forget how rollbacks past `horizons` ended. Raises: as the port."""
        found = report_rows(self.rows(), horizons, after, limit)
        if found.rows:
            self._database.write(found.rows)
        return found.after, found.seen

    def shadow(self, failpoint: Callable[[str], None]) -> RocksShadow:
        """Begin a copy of the store, in a folder beside it. Raises: as the port."""
        if self._shadow is not None:
            self._shadow.discard()
        part = begin(self._path)
        self._database.checkpoint(part)
        self._shadow = RocksShadow(
            self._path,
            part,
            self._open(part, logged=False),
            self._doorbell,
            partial(self._adopt, failpoint),
            failpoint,
        )
        return self._shadow

    def checkpoint(self, path: Path) -> Offset:
        """Make a consistent copy at `path`, which must not exist; return its offset.

        Hard links where the file system is the same, so cheap in time and space.
        Raises: `StoreUnavailable`.
        """
        self._database.checkpoint(path)
        copy = Doorbell(path, owner=True)
        copy.ring(self.applied())
        copy.close()
        return self.applied()

    def close(self) -> None:
        """Flush and release the lock; again does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._shadow is not None:
            self._shadow.discard()
        self._database.close()
        self._doorbell.close()

    def _adopt(self, failpoint: Callable[[str], None]) -> None:
        """Open what is to be the store, and tell the readers of the one that was."""
        self._database.close()
        failpoint("shadow.closed")
        settle(self._path, failpoint)
        self._database = self._open(self._path)
        failpoint("shadow.opened")
        before, self._doorbell = self._doorbell, Doorbell(self._path, owner=True)
        self._doorbell.ring(self.applied())
        # They look where it is now, and keep the files that they have open.
        before.ring(self.applied())
        before.close()
        self._shadow = None
        forget_before(self._path)
