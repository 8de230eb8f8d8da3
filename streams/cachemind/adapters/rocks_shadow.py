"""A copy of a store that takes its place, for changes too large for one write.

1. *begun*: a checkpoint of the store, made as `<store>.part`: hard links, so it takes
   only what will differ.
2. *put*: the changes, in pieces of bounded size, without RocksDB's own WAL.
3. *sealed*: the last commit, with the applied offset; all of it is on disk.
4. *decided*: the copy has the name by which it will be the store (see `store_swap`).
5. *closed*, *moved*: the store is closed and steps aside.
6. *opened*: the copy is open in its place, and its readers are told.

Up to 4 the store is as it was, and a start removes the copy. From 4 on a start finishes
what is left.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cachemind.adapters.doorbell import Doorbell
from cachemind.adapters.rocks_database import RocksDatabase
from cachemind.adapters.store_batch import placing_rows
from cachemind.adapters.store_reading import read_totals
from cachemind.adapters.store_swap import decide
from cachemind.core.state import Entry, Step
from cachemind.types import ContextKey, ExactKey, Namespace, Offset


class RocksShadow:
    """`ShadowStore` in a folder beside the store's."""

    def __init__(
        self,
        path: Path,
        part: Path,
        copy: RocksDatabase,
        bell: Doorbell,
        adopt: Callable[[], None],
        failpoint: Callable[[str], None],
    ) -> None:
        """`copy` is open in `part`, beside the store at `path` whose bell is `bell`.

        `adopt` opens the copy in the store's place, once that is decided.
        """
        self._path = path
        self._part = part
        self._copy = copy
        self._bell = bell
        self._adopt = adopt
        self._failpoint = failpoint
        self._decided = False
        failpoint("shadow.begun")

    def put(
        self,
        namespace: Namespace,
        entries: Mapping[ExactKey, Entry | None],
        removed_contexts: Mapping[ExactKey, ContextKey],
    ) -> None:
        """Change entries of the copy. Raises: `StoreUnavailable`."""
        self._copy.put(placing_rows(namespace, entries, removed_contexts))
        self._failpoint("shadow.put")

    def totals(self, namespace: Namespace) -> tuple[int, int]:
        """Return digest and number of the entries in the copy: a full scan."""
        return read_totals(self._copy.rows, namespace)

    def commit(
        self, applied: Offset, steps: Mapping[Namespace, Sequence[Step]]
    ) -> None:
        """Commit to the copy, and put it in the store's place. Raises: as the port."""
        self._copy.commit(applied, steps)
        self._copy.flush()
        self._copy.close()
        # What is fenced stays so: readers go from one bell to the other.
        bell = Doorbell(self._part, owner=True)
        bell.fence_as(self._bell)
        bell.ring(applied)
        bell.close()
        self._failpoint("shadow.sealed")
        decide(self._path)
        self._decided = True
        self._failpoint("shadow.decided")
        self._adopt()

    def discard(self) -> None:
        """Remove the copy; once it was to be the store do nothing."""
        if self._decided:
            return
        self._copy.close()
        shutil.rmtree(self._part, ignore_errors=True)
