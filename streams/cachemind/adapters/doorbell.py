"""A hint in shared memory that a store has a new commit.

A file of 8 byte words in the store's folder, mapped by the owner and its readers. The
first is the applied offset plus one in the machine's byte order, written after each
commit. It is never the truth; that is in the store. As long as a reader has the file
mapped, its inode cannot be given to another file, so it also tells a rebuilt store
from the old.

The other words are *fences*: before the owner works on a rollback at an offset, it
says there that older state of the namespace must not be served. Namespaces that share
a fence only miss more often.

The file is also a lock. A reader holds it, shared, while it follows the store by its
path: the path must not lead to another store meanwhile. Who puts another store there
holds it alone; the last word asks the readers to let it be taken.
"""

from __future__ import annotations

import fcntl
import logging
import mmap
import os
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from zlib import crc32

from cachemind.errors import StoreUnavailable
from cachemind.types import Namespace, Offset

NAME: Final = "cachemind.doorbell"
FENCES: Final = 64
_WORD_BYTES: Final = 8
_MOVING: Final = 1 + FENCES
SIZE_BYTES: Final = _WORD_BYTES * (2 + FENCES)
READERS_S: Final = 5.0
"""How long to wait for readers: their catch-ups take milliseconds. One that hangs must
not hold up the store's owner for good."""

_POLL_S: Final = 0.001
log = logging.getLogger(__name__)


class Doorbell:
    """The mapped file. One aligned 8 byte write, so a reader never sees half."""

    def __init__(self, folder: Path, *, owner: bool) -> None:
        """Map the file, which the owner makes. Raises: `StoreUnavailable`."""
        self._path = folder / NAME
        try:
            descriptor = _opened(self._path, owner=owner)
            self._let_go = weakref.finalize(self, os.close, descriptor)
            self._map, self._inode = _mapped(descriptor, owner=owner)
        except (OSError, ValueError) as error:
            raise StoreUnavailable(f"{self._path}: {error}") from error
        self._descriptor = descriptor
        self._word = memoryview(self._map).cast("Q")
        if owner:
            self._word[_MOVING] = 0  # nobody else moves the store of an open owner

    def ring(self, applied: Offset) -> None:
        """Say that everything up to `applied` is committed."""
        self._word[0] = applied + 1

    def read(self) -> int:
        """Return what was rung last, plus one; 0 for nothing yet."""
        return self._word[0]

    def fence(self, namespace: Namespace, offset: Offset) -> None:
        """Say that state from before `offset` must not be served of `namespace`."""
        slot = _slot(namespace)
        self._word[slot] = max(self._word[slot], offset + 1)

    def fence_all(self, offset: Offset) -> None:
        """Say that state from before `offset` must not be served of any namespace."""
        for slot in range(1, 1 + FENCES):
            self._word[slot] = max(self._word[slot], offset + 1)

    def fenced_at(self, namespace: Namespace) -> Offset:
        """Return the offset that `namespace` is fenced at, -1 where it never was."""
        return Offset(self._word[_slot(namespace)] - 1)

    def fence_as(self, other: Doorbell) -> None:
        """Take over every fence of `other`, of the store that this one follows."""
        for slot in range(1, 1 + FENCES):
            self._word[slot] = max(self._word[slot], other._word[slot])

    @contextmanager
    def in_place(self) -> Iterator[bool]:
        """Yield whether the path still leads to this store, as it does until the end.

        For readers, who wait here while the store is being replaced.
        """
        until = time.monotonic() + READERS_S
        while self._word[_MOVING] and time.monotonic() < until:
            time.sleep(_POLL_S)
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)
        try:
            yield not self.moved()
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def moved(self) -> bool:
        """Return whether the path now leads to another store, or to none."""
        try:
            found = self._path.stat()
        except OSError:
            return True
        return (found.st_dev, found.st_ino) != self._inode

    def close(self) -> None:
        """Unmap the file."""
        self._word.release()
        self._map.close()
        self._let_go()


@contextmanager
def readers_held_off(folder: Path) -> Iterator[None]:
    """Let no reader follow the store in `folder` by its path until the end.

    Where one does not let go in time, go on without: it can only read what is wrong
    until it notices. Raises: `OSError`.
    """
    if not (folder / NAME).exists():
        yield  # never opened by an owner, so by no reader either
        return
    descriptor = _opened(folder / NAME, owner=True)
    try:
        with _mapped(descriptor, owner=True)[0] as found:
            word = memoryview(found).cast("Q")
            word[_MOVING] = 1
            try:
                if not _locked(descriptor):
                    log.warning("%s: a reader does not let go", folder)
                yield
            finally:
                word[_MOVING] = 0
                word.release()
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    until = time.monotonic() + READERS_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(_POLL_S)
        else:
            return True


def _slot(namespace: Namespace) -> int:
    return 1 + crc32(namespace.encode()) % FENCES


def _opened(path: Path, *, owner: bool) -> int:
    flags = os.O_RDWR | os.O_CREAT if owner else os.O_RDONLY
    return os.open(path, flags | os.O_CLOEXEC, 0o644)


def _mapped(descriptor: int, *, owner: bool) -> tuple[mmap.mmap, tuple[int, int]]:
    if owner:
        os.ftruncate(descriptor, SIZE_BYTES)
    found = os.fstat(descriptor)
    access = mmap.ACCESS_WRITE if owner else mmap.ACCESS_READ
    mapped = mmap.mmap(descriptor, SIZE_BYTES, access=access)
    return mapped, (found.st_dev, found.st_ino)
