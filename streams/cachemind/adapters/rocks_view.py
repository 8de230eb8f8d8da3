"""A reader's side of a partition's store: a RocksDB secondary.

It follows the owner's files from another process. RocksDB alone does not keep such a
reader whole when the owner turns a memtable into a file (measured): rows
of the old memtable that the reader holds can lie over newer ones in the file, and a
WAL can be deleted before the reader came to its end. So a catch-up here

1. is repeated while the manifest grew under it: only then may a WAL have gone missing;
2. compares the applied offset with the seal (see `store_rows`), and where old rows lie
   over new ones opens the secondary anew;
3. holds the store in its place (see `doorbell`): RocksDB looks for new files by the
   store's path, and would take those of another store that has come there for its own.

Reads may come from any thread. Those that run during a catch-up may see some rows
from before and some from after it.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Final

from rocksdict import AccessType, Rdict

from cachemind.adapters.doorbell import Doorbell
from cachemind.adapters.rocks_database import require_identity
from cachemind.adapters.rocks_options import (
    RocksMemory,
    RocksRows,
    store_options,
    translated,
)
from cachemind.adapters.store_reading import NoRows, RowView, read_applied
from cachemind.adapters.store_rows import IDENTITY, SEAL, StoreIdentity
from cachemind.errors import StoreUnavailable
from cachemind.types import Namespace, Offset

_CURRENT: Final = "CURRENT"
"""RocksDB's pointer to its manifest: there once a database is."""

_TRIES: Final = 100


class RocksView(RowView):
    """`StoreInspector` of one partition; empty until the first good `catch_up`."""

    def __init__(
        self,
        path: Path,
        memory: RocksMemory,
        *,
        identity: StoreIdentity | None = None,
        scratch: Path | None = None,
    ) -> None:
        """Touch nothing yet. With `identity`, accept only a store of that log.

        RocksDB's own log of this reader goes to a folder of its own under `scratch`
        (default: the system's temporary folder), which `close` removes.
        """
        super().__init__()
        self._path = path
        self._memory = memory
        self._identity = identity
        self._scratch = scratch
        self._lock = Lock()
        self._open: _Secondary | None = None
        self._heard = 0

    def catch_up(self) -> Offset:
        """Show what the owner has committed since; return the applied offset.

        A store that was deleted and rebuilt is opened anew.
        Raises: `StoreUnavailable` where there is no store, and then goes on showing
        the old one; `StoreMismatch` where it belongs to another log.
        """
        with self._lock:
            return self._follow()

    def changed(self) -> bool:
        """Return whether the owner seems to have committed since `catch_up`."""
        opened = self._open
        return opened is None or opened.bell.read() != self._heard

    def fenced_at(self, namespace: Namespace) -> Offset:
        """Return the offset that `namespace` is fenced at, -1 where it never was."""
        opened = self._open
        return Offset(-1) if opened is None else opened.bell.fenced_at(namespace)

    def close(self) -> None:
        """Release the files."""
        with self._lock:
            self.show(NoRows())
            if self._open is not None:
                self._open.close()
                self._open = None

    def _follow(self) -> Offset:
        opened = self._open
        for _ in range(_TRIES):
            bell = _bell(self._path) if opened is None else opened.bell
            with bell.in_place() as in_place:
                if in_place:
                    opened = opened or self._reopened(bell)
                    # First: a ring from here on costs one more catch-up.
                    heard = bell.read()
                    opened.catch_up()
                    if opened.whole():
                        self._heard = heard
                        return self.show(opened.rows)
            opened = None
        raise StoreUnavailable(f"{self._path}: changes faster than it can be read")

    def _reopened(self, bell: Doorbell) -> _Secondary:
        opened = _Secondary(
            self._path, bell, self._memory, self._identity, self._scratch
        )
        before, self._open = self._open, opened
        if before is not None:
            before.abandon()
        return opened


def _bell(path: Path) -> Doorbell:
    """Return the doorbell of the store at `path`. Raises: `StoreUnavailable`."""
    if not (path / _CURRENT).exists():
        # RocksDB would make the folder that it does not find.
        raise StoreUnavailable(f"{path}: no store here yet")
    return Doorbell(path, owner=False)


class _Secondary:
    """An open secondary with the doorbell of the store that it follows."""

    def __init__(
        self,
        path: Path,
        bell: Doorbell,
        memory: RocksMemory,
        identity: StoreIdentity | None,
        scratch: Path | None,
    ) -> None:
        self._path = path
        self._pointer = (-1, -1)
        self._manifest_path = path
        self.bell = bell
        self._own = TemporaryDirectory(prefix="cachemind-view-", dir=scratch)
        try:
            with translated(path):
                self._database = Rdict(
                    str(path),
                    store_options(memory, create=False),
                    access_type=AccessType.secondary(self._own.name),
                )
            self.rows = RocksRows(self._database, path)
            self._check(identity)
        except BaseException:
            self._own.cleanup()
            raise

    def catch_up(self) -> None:
        """Follow the owner. Raises: `StoreUnavailable`."""
        for _ in range(_TRIES):
            before = self._manifest()
            with translated(self._path):
                self._database.try_catch_up_with_primary()
            if self._manifest() == before:
                return
        raise StoreUnavailable(f"{self._path}: changes faster than it can be read")

    def whole(self) -> bool:
        """Return whether no old row lies over a newer one."""
        seal = self.rows.last(SEAL)
        sealed = -1 if seal is None else int.from_bytes(seal[1:], "big")
        return sealed == read_applied(self.rows)

    def _manifest(self) -> tuple[int, int, int]:
        """Return what differs whenever the owner's set of files does."""
        try:
            pointer = self._path / _CURRENT
            found = pointer.stat()
            identity = found.st_ino, found.st_mtime_ns
            if identity != self._pointer:
                self._manifest_path = self._path / pointer.read_text().strip()
                self._pointer = identity
            size = self._manifest_path.stat().st_size
        except OSError as error:
            raise StoreUnavailable(f"{self._path}: {error}") from error
        return *identity, size

    def abandon(self) -> None:
        """Leave closing to the last thread that still reads from it."""
        self._own.cleanup()

    def close(self) -> None:
        self._database.close()
        self._own.cleanup()

    def _check(self, identity: StoreIdentity | None) -> None:
        raw = self.rows.get(IDENTITY)
        if raw is None:
            # The owner may have made a file of it while we opened.
            self.catch_up()
            raw = self.rows.get(IDENTITY)
        if raw is None:
            raise StoreUnavailable(f"{self._path}: the owner is still making it")
        require_identity(self._path, raw, identity)
