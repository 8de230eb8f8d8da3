"""The checkpoints of one partition's store, on disk.

    <folder>/<offset>/            RocksDB's checkpoint: hard links where possible
    <folder>/<offset>/manifest.json   what it holds, and every file's hash
    <folder>/<offset>/pin         locked, shared, by whoever reads it
    <folder>/<offset>.part, .gone     one that is being made, or removed

A checkpoint has its name only once it is whole and on disk. Whoever uses one holds its
pin; who removes one needs the pin alone, so a checkpoint in use stays. Offset -1, a
store without a record, has no checkpoint.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rocksdict import AccessType, Rdict

from cachemind.adapters.checkpoint_files import KnownHashes
from cachemind.adapters.checkpoint_view import CheckpointView
from cachemind.adapters.file_sync import sync_folder, write_whole
from cachemind.adapters.rocks_options import (
    RocksMemory,
    RocksRows,
    store_options,
    translated,
)
from cachemind.adapters.rocks_store import RocksStore
from cachemind.adapters.store_rows import FORMAT, StoreIdentity
from cachemind.core.checkpoint import (
    CheckpointManifest,
    decode_checkpoint,
    encode_checkpoint,
    is_permanent,
)
from cachemind.core.digest import to_bytes
from cachemind.core.hosts import HostCheckpoint
from cachemind.core.retention import Dated, outdated
from cachemind.core.rollback import Base
from cachemind.core.snapshots import (
    NO_EXPIRY,
    SnapshotNamespace,
    SnapshotPartition,
)
from cachemind.core.state import NamespaceState
from cachemind.errors import CheckpointRefused, CorruptState, StoreUnavailable
from cachemind.ports import StoreInspector
from cachemind.types import Namespace, Offset, Sha256

log = logging.getLogger(__name__)

MANIFEST: Final = "manifest.json"
PIN: Final = "pin"
_OURS: Final = frozenset({MANIFEST, f"{MANIFEST}.new", PIN})
_READING: Final = "LOG"
"""RocksDB's own messages, which say nothing of the state."""


def _go_on(failpoint: str) -> None:
    """Do not die here."""


class RocksCheckpoints:
    """`Checkpoints` in a folder. Safe to use from any thread and process."""

    def __init__(
        self, folder: Path, identity: StoreIdentity, memory: RocksMemory
    ) -> None:
        """Touch nothing yet; the folder may be missing."""
        self._folder = folder
        self._identity = identity
        self._memory = memory
        self._hashes = KnownHashes()

    def manifests(self) -> Sequence[CheckpointManifest]:
        """Return every checkpoint of this log, the newest first.

        What is not one, or of another log or format, is named in the log and left out.
        Raises: `StoreUnavailable`.
        """
        found: list[CheckpointManifest] = []
        for offset in self.offsets():
            try:
                found.append(self._manifest(offset))
            except CheckpointRefused as error:
                log.warning("%s", error)
        return found

    def oldest(self) -> CheckpointManifest | None:
        """Return the oldest checkpoint, None where there is none that can be read.

        Raises: `StoreUnavailable`.
        """
        for offset in reversed(self.offsets()):
            try:
                return self._manifest(offset)
            except CheckpointRefused as error:
                log.warning("%s", error)
        return None

    def bases(self, namespace: Namespace) -> Sequence[Base]:
        """Return what each checkpoint holds of `namespace`; those without it not."""
        return [
            Base(
                offset=manifest.offset,
                version=held.version,
                digest=int.from_bytes(held.digest, "big"),
            )
            for manifest in self.manifests()
            if (held := manifest.namespace(namespace)) is not None
        ]

    @contextmanager
    def hold(self, offset: Offset) -> Iterator[tuple[CheckpointManifest, Path]]:
        """Yield a sound checkpoint's manifest and folder, kept as long as they are.

        Raises: `CheckpointRefused`, which names what is wrong.
        """
        folder = self._at(offset)
        with self._pinned(offset):
            manifest = self._manifest(offset)
            for file in manifest.held.files:
                self._hashes.require(str(folder), folder / file.name, file)
            yield manifest, folder

    @contextmanager
    def open(self, offset: Offset) -> Iterator[StoreInspector]:
        """Open the checkpoint at `offset` to read, verified and kept meanwhile.

        Raises: `CheckpointRefused`.
        """
        with self.hold(offset) as (_, folder), TemporaryDirectory() as own:
            options = store_options(self._memory, create=False)
            options.set_db_log_dir(own)
            try:
                with translated(folder):
                    database = Rdict(
                        str(folder), options, access_type=AccessType.read_only()
                    )
            except StoreUnavailable as error:
                raise CheckpointRefused(str(folder), str(error)) from error
            try:
                yield CheckpointView(RocksRows(database, folder))
            finally:
                database.close()

    def prune(self, now_ns: int) -> Sequence[Offset]:
        """Remove what retention gives up and nobody holds; return what went.

        Raises: `StoreUnavailable`.
        """
        dated = [
            Dated(
                offset=one.offset,
                created_at_ns=one.created_at_ns,
                permanent=is_permanent(one, now_ns),
            )
            for one in self.manifests()
        ]
        gone = outdated(dated, now_ns)
        return [one.offset for one in gone if self.remove(one.offset)]

    def remove(self, offset: Offset) -> bool:
        """Remove a checkpoint; return whether nobody held it.

        Raises: `StoreUnavailable`.
        """
        folder = self._at(offset)
        going = folder.with_name(f"{folder.name}.gone")
        try:
            with self._pinned(offset, alone=True):
                shutil.rmtree(going, ignore_errors=True)
                folder.rename(going)
        except (CheckpointRefused, BlockingIOError):
            return False  # removed by somebody else, or in use
        except OSError as error:
            raise StoreUnavailable(f"{folder}: {error}") from error
        shutil.rmtree(going, ignore_errors=True)
        return True

    def sweep(self) -> None:
        """Remove what was left half made or half removed; the maker alone may."""
        for word in ("part", "gone"):
            for left in self._folder.glob(f"*.{word}"):
                shutil.rmtree(left, ignore_errors=True)

    def _at(self, offset: Offset) -> Path:
        return self._folder / str(offset)

    def told(self, offset: Offset) -> HostCheckpoint:
        """Return what other hosts are told of one. Raises: `CheckpointRefused`."""
        manifest = self._manifest(offset)
        return HostCheckpoint(
            partition=manifest.held.partition,
            offset=manifest.offset,
            created_at_ns=manifest.created_at_ns,
            namespaces=manifest.held.namespaces,
        )

    def offsets(self) -> Sequence[Offset]:
        """Return where there is a checkpoint, sound or not, the newest first.

        Raises: `StoreUnavailable`.
        """
        try:
            names = [each.name for each in self._folder.iterdir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreUnavailable(f"{self._folder}: {error}") from error
        numbers = (name for name in names if name.isascii() and name.isdigit())
        return sorted((Offset(int(name)) for name in numbers), reverse=True)

    def _manifest(self, offset: Offset) -> CheckpointManifest:
        folder = self._at(offset)
        try:
            manifest = decode_checkpoint((folder / MANIFEST).read_bytes())
        except OSError as error:
            raise CheckpointRefused(str(folder), "it has no manifest") from error
        except CorruptState as error:
            raise CheckpointRefused(str(folder), error.problem) from error
        mine = self._identity
        expected = (
            mine.cluster_id,
            mine.topic_id,
            FORMAT,
            mine.partition,
            offset,
        )
        found = (
            manifest.cluster_id,
            manifest.topic_id,
            manifest.store_format,
            manifest.held.partition,
            manifest.offset,
        )
        if found != expected:
            raise CheckpointRefused(str(folder), "it is of another log or format")
        return manifest

    @contextmanager
    def _pinned(self, offset: Offset, *, alone: bool = False) -> Iterator[None]:
        """Hold the pin, shared or alone. Raises: `BlockingIOError` where alone."""
        path = self._at(offset) / PIN
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise CheckpointRefused(str(path.parent), "it is not there") from error
        try:
            kind = fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH
            fcntl.flock(descriptor, kind)
            if not _is_at(descriptor, path):
                # It was removed between the two calls.
                raise CheckpointRefused(str(path.parent), "it is not there")
            yield
        finally:
            os.close(descriptor)

    # ---- making one -----------------------------------------------------------------

    def create(
        self,
        store: RocksStore,
        now_ns: int,
        name: str = "",
        expires_at_ns: int = NO_EXPIRY,
        failpoint: Callable[[str], None] = _go_on,
    ) -> CheckpointManifest:
        """Make a checkpoint of `store`, or name the one there is of its offset.

        Called by the thread that commits. Raises: `StoreUnavailable`; `ValueError` for
        a store without a record.
        """
        offset = store.applied()
        if offset < 0:
            raise ValueError("a store without a record has no checkpoint")
        if self._at(offset).exists():
            try:
                return self._named(offset, name, expires_at_ns)
            except CheckpointRefused as error:
                log.warning("%s; it is made anew", error)
                self.remove(offset)
        try:
            return self._made(store, now_ns, name, expires_at_ns, failpoint)
        except OSError as error:
            raise StoreUnavailable(f"{self._at(offset)}: {error}") from error

    def _named(
        self, offset: Offset, name: str, expires_at_ns: int
    ) -> CheckpointManifest:
        manifest = self._manifest(offset)
        if not name or name == manifest.name:
            return manifest
        named = replace(manifest, name=name, expires_at_ns=expires_at_ns)
        try:
            write_whole(self._at(offset) / MANIFEST, encode_checkpoint(named))
        except OSError as error:
            raise StoreUnavailable(f"{self._at(offset)}: {error}") from error
        return named

    def _made(
        self,
        store: RocksStore,
        now_ns: int,
        name: str,
        expires_at_ns: int,
        failpoint: Callable[[str], None],
    ) -> CheckpointManifest:
        part = self._folder / f"{store.applied()}.part"
        shutil.rmtree(part, ignore_errors=True)
        failpoint("checkpoint.begun")
        offset = store.checkpoint(part)
        failpoint("checkpoint.linked")
        (part / PIN).touch()
        manifest = CheckpointManifest(
            cluster_id=self._identity.cluster_id,
            topic_id=self._identity.topic_id,
            store_format=FORMAT,
            created_at_ns=now_ns,
            name=name,
            expires_at_ns=expires_at_ns,
            held=SnapshotPartition(
                partition=self._identity.partition,
                offset=offset,
                namespaces=tuple(map(_namespace, store.namespaces())),
                files=tuple(self._hashes.new(path) for path in _files(part)),
            ),
        )
        write_whole(part / MANIFEST, encode_checkpoint(manifest))
        failpoint("checkpoint.hashed")
        part.rename(self._at(offset))
        sync_folder(self._folder)
        failpoint("checkpoint.made")
        return manifest


class RocksCheckpointMaker:
    """`CheckpointMaker` of one open store."""

    def __init__(
        self,
        checkpoints: RocksCheckpoints,
        store: RocksStore,
        failpoint: Callable[[str], None] = _go_on,
    ) -> None:
        """Remove what was cut off while it was made or removed before."""
        self._checkpoints = checkpoints
        self._store = store
        self._failpoint = failpoint
        checkpoints.sweep()

    def make(self, now_ns: int) -> Offset:
        """Make a checkpoint of what is committed; return its offset."""
        made = self._checkpoints.create(self._store, now_ns, failpoint=self._failpoint)
        return made.offset

    def prune(self, now_ns: int) -> Sequence[Offset]:
        """Remove what retention gives up and nobody holds; return what went."""
        return self._checkpoints.prune(now_ns)


def _files(folder: Path) -> Sequence[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if path.name not in _OURS and not path.name.startswith(_READING)
    )


def _namespace(state: NamespaceState) -> SnapshotNamespace:
    return SnapshotNamespace(
        namespace=state.namespace,
        version=state.version,
        timeline=state.timeline,
        digest=Sha256(to_bytes(state.digest)),
        entries=state.entries,
    )


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    mine = os.fstat(descriptor)
    return (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino)
