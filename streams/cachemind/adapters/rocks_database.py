"""One folder with a partition's rows, opened to be written.

A store's own folder, or the copy of it that is to take its place. Each commit is one
WriteBatch, so it is in the folder whole or not at all, and in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rocks_table import RocksTable
from cachemind.adapters.store_batch import batch_of
from cachemind.adapters.store_journal import Journal
from cachemind.adapters.store_reading import read_applied, scan_prefix
from cachemind.adapters.store_rows import IDENTITY, JOURNAL, StoreIdentity
from cachemind.core.state import Step
from cachemind.errors import CorruptState, StoreMismatch
from cachemind.types import Namespace, Offset


class RocksDatabase(RocksTable):
    """The rows of one partition."""

    def __init__(
        self,
        path: Path,
        identity: StoreIdentity,
        memory: RocksMemory,
        *,
        journal_changes: int,
        logged: bool = True,
    ) -> None:
        """Open the database, see `RocksTable`.

        Raises: also `StoreMismatch` where it was folded from another log or by another
        format.
        """
        super().__init__(path, memory, logged=logged)
        try:
            self._claim(identity)
            self._journal = Journal(journal_changes, scan_prefix(self.rows, JOURNAL))
            self.applied = read_applied(self.rows)
        except BaseException:
            self.close()
            raise

    def commit(
        self, applied: Offset, steps: Mapping[Namespace, Sequence[Step]]
    ) -> None:
        """Write `steps` and the new applied offset, all or nothing.

        Raises: `StoreUnavailable`; nothing then changed.
        """
        batch = batch_of(self._journal, self.applied, applied, steps)
        self.write(batch.rows)
        self._journal.kept(applied, batch.changes)
        self.applied = applied

    def _claim(self, identity: StoreIdentity) -> None:
        raw = self.rows.get(IDENTITY)
        if raw is None:
            self.write([(IDENTITY, identity.encode())])
        else:
            require_identity(self.path, raw, identity)


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
