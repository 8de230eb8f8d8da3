"""Sealed audit files in a folder.

A file is written beside its place as `<random>.partial`, put on disk, and then gets its
name by link(2), which never replaces one that is there. The lock on a partial file
tells a writer that is alive from one that was killed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import Final

from cachemind.adapters.file_sync import sync_folder
from cachemind.core.audit_files import CUTS, RECEIPTS, AuditStream
from cachemind.errors import (
    AuditFileDamaged,
    AuditFilesUnavailable,
    AuditFileTaken,
    AuditScratchLost,
)

_PARTIAL: Final = re.compile(r"[0-9a-f]{16}\.partial\Z", re.ASCII)
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FOLDER_MODE: Final = 0o750
_SEALED_MODE: Final = 0o440

Failpoint = Callable[[str], None]


def _pass(_: str) -> None:
    """Go on."""


class AuditFolder:
    """An `AuditTarget` below one folder, which is made where it is not there."""

    def __init__(self, folder: Path, failpoint: Failpoint = _pass) -> None:
        """Touch nothing yet. `failpoint` is told of each step, for tests."""
        self._folder = folder
        self._failpoint = failpoint

    @property
    def where(self) -> str:
        """Return the folder."""
        return str(self._folder)

    def streams(self) -> tuple[Sequence[AuditStream], Sequence[str]]:
        """Return the streams that have a folder, and what else is below `receipts`."""
        found: list[AuditStream] = []
        foreign: list[str] = []
        with _translated(self._folder):
            for name in self._candidates():
                stream = AuditStream.parse(name)
                if stream is not None and (self._folder / name).is_dir():
                    found.append(stream)
                else:
                    foreign.append(name)
        return found, foreign

    def names(self, stream: AuditStream) -> Mapping[str, int]:
        """Return the name and size of all in the stream's folder but partial files."""
        folder = self._of(stream)
        with _translated(folder):
            if not folder.exists():
                return {}
            return {
                path.name: path.lstat().st_size
                for path in folder.iterdir()
                if not _PARTIAL.match(path.name)
            }

    def read(self, stream: AuditStream, name: str) -> bytes:
        """Return a file whole."""
        path = self._of(stream) / name
        with _translated(path):
            try:
                return path.read_bytes()
            except FileNotFoundError as error:
                raise AuditFileDamaged(
                    f"{stream.folder}/{name}", "is missing"
                ) from error

    def begin(self, stream: AuditStream) -> FolderScratch:
        """Begin a partial file; remove those whose writers are dead."""
        folder = self._of(stream)
        with _translated(folder):
            _made(folder)
            _sweep(folder)
            return FolderScratch(folder, stream.folder, self._failpoint)

    def _of(self, stream: AuditStream) -> Path:
        return self._folder / stream.folder

    def _candidates(self) -> Iterator[str]:
        if (self._folder / CUTS).exists():
            yield CUTS
        receipts = self._folder / RECEIPTS
        if receipts.is_dir():
            yield from sorted(f"{RECEIPTS}/{path.name}" for path in receipts.iterdir())


class FolderScratch:
    """An `AuditScratch` in a stream's folder."""

    def __init__(self, folder: Path, shown: str, failpoint: Failpoint) -> None:
        self._folder = folder
        self._shown = shown
        self._failpoint = failpoint
        self._path = folder / f"{secrets.token_hex(8)}.partial"
        self._size = 0
        self._sealed_as: str | None = None
        self._descriptor: int | None = _begun(self._path)
        failpoint("partial-begun")

    def append(self, block: bytes) -> None:
        """Add all of `block`, or nothing of it."""
        descriptor = self._open()
        try:
            _write_all(descriptor, block)
        except OSError as error:
            self._cut_back(descriptor, error)
            raise AuditFilesUnavailable(str(self._path), _words(error)) from error
        self._size += len(block)
        self._failpoint("block-written")

    def seal(self, name: str) -> None:
        """Put the bytes on disk, then give the file its name."""
        if self._sealed_as == name:
            return
        descriptor = self._open()
        try:
            os.fchmod(descriptor, _SEALED_MODE)
            os.fsync(descriptor)
        except OSError as error:
            # After a failed fsync the kernel may have dropped what it could not write.
            raise AuditScratchLost(str(self._path), _words(error)) from error
        self._failpoint(f"partial-synced{PurePath(name).suffix}")
        self._link(name)
        self._failpoint(f"linked{PurePath(name).suffix}")
        with _translated(self._folder):
            sync_folder(self._folder)
        self._sealed_as = name
        self._failpoint(f"sealed{PurePath(name).suffix}")
        self.discard()

    def discard(self) -> None:
        """Close and remove the partial file."""
        if self._descriptor is not None:
            with suppress(OSError):
                self._path.unlink()
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None

    def _link(self, name: str) -> None:
        place = self._folder / name
        try:
            os.link(self._path, place)
        except FileExistsError as error:
            if not self._same_as(place):
                raise AuditFileTaken(f"{self._shown}/{name}") from error
        except FileNotFoundError as error:
            raise AuditScratchLost(str(self._path), "somebody removed it") from error
        except OSError as error:
            raise AuditFilesUnavailable(str(place), _words(error)) from error

    def _same_as(self, place: Path) -> bool:
        with _translated(place):
            return place.read_bytes() == self._path.read_bytes()

    def _open(self) -> int:
        if self._descriptor is None:
            raise AuditScratchLost(str(self._path), "it was given up")
        return self._descriptor

    def _cut_back(self, descriptor: int, error: OSError) -> None:
        """Take a block away that was written in part.

        Raises: `AuditScratchLost` where that is not certain to leave what was before.
        """
        try:
            if error.errno not in _NO_ROOM:
                raise error
            os.ftruncate(descriptor, self._size)
            os.lseek(descriptor, self._size, os.SEEK_SET)
        except OSError as worse:
            raise AuditScratchLost(str(self._path), _words(worse)) from worse


def _begun(path: Path) -> int:
    """Return the descriptor of a new file that this process holds."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        # Somebody sweeps just now, and took it for an abandoned one.
        os.close(descriptor)
        raise
    return descriptor


def _write_all(descriptor: int, block: bytes) -> None:
    left = memoryview(block)
    while left:
        left = left[os.write(descriptor, left) :]


def _made(folder: Path) -> None:
    """Make a folder and those above it, and put their names on disk."""
    if folder.is_dir():
        return
    _made(folder.parent)
    folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
    sync_folder(folder.parent)


def _sweep(folder: Path) -> None:
    for path in list(folder.iterdir()):
        if _PARTIAL.match(path.name):
            # Removed by somebody else, or held by one who is alive.
            with suppress(FileNotFoundError, BlockingIOError):
                _remove_abandoned(path)


def _remove_abandoned(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(descriptor)


@contextmanager
def _translated(where: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise AuditFilesUnavailable(str(where), _words(error)) from error


def _words(error: OSError) -> str:
    return error.strerror or type(error).__name__
