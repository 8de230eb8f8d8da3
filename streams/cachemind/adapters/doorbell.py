"""A hint in shared memory that a store has a new commit.

A file of 8 byte words in the store's folder, mapped by the owner and its readers. The
first is the applied offset plus one in the machine's byte order, written after each
commit. It is never the truth; that is in the store. As long as a reader has the file
mapped, its inode cannot be given to another file, so it also tells a rebuilt store
from the old.

The other words are *fences*: before the owner works on a rollback at an offset, it
says there that older state of the namespace must not be served. Namespaces that share
a fence only miss more often.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Final
from zlib import crc32

from cachemind.errors import StoreUnavailable
from cachemind.types import Namespace, Offset

NAME: Final = "cachemind.doorbell"
FENCES: Final = 64
_WORD_BYTES: Final = 8
SIZE_BYTES: Final = _WORD_BYTES * (1 + FENCES)


class Doorbell:
    """The mapped file. One aligned 8 byte write, so a reader never sees half."""

    def __init__(self, folder: Path, *, owner: bool) -> None:
        """Map the file, which the owner makes. Raises: `StoreUnavailable`."""
        self._path = folder / NAME
        try:
            self._map, self._inode = _mapped(self._path, owner=owner)
        except (OSError, ValueError) as error:
            raise StoreUnavailable(f"{self._path}: {error}") from error
        self._word = memoryview(self._map).cast("Q")

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


def _slot(namespace: Namespace) -> int:
    return 1 + crc32(namespace.encode()) % FENCES


def _mapped(path: Path, *, owner: bool) -> tuple[mmap.mmap, tuple[int, int]]:
    flags = os.O_RDWR | os.O_CREAT if owner else os.O_RDONLY
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
    try:
        if owner:
            os.ftruncate(descriptor, SIZE_BYTES)
        found = os.fstat(descriptor)
        access = mmap.ACCESS_WRITE if owner else mmap.ACCESS_READ
        mapped = mmap.mmap(descriptor, SIZE_BYTES, access=access)
        return mapped, (found.st_dev, found.st_ino)
    finally:
        os.close(descriptor)
