"""The files of a checkpoint: their hashes, and whether they still have them.

A file that is linked from the live store is immutable and large. Its hash is taken
once: as long as device, inode, size and both times are what they were when it was
hashed on this host, it is the same file. (A link that is made or goes away changes
`ctime`: then it is hashed again.)
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Final

from cachemind.core.snapshots import SnapshotFile
from cachemind.errors import CheckpointRefused
from cachemind.types import Sha256

_CHUNK_BYTES: Final = 4 * 2**20
_KEPT: Final = 10_000
Identity = tuple[int, int, int, int, int]


class KnownHashes:
    """The hashes taken in this process, by what tells one file from another."""

    def __init__(self) -> None:
        self._known: dict[Identity, Sha256] = {}
        self._by_inode: dict[tuple[int, int, int, int], Sha256] = {}

    def new(self, path: Path) -> SnapshotFile:
        """Return what is to be recorded of a file that was just linked or written.

        Here `ctime` does not count: linking the file has just changed it.
        Raises: `OSError`.
        """
        found = _identity(path)
        digest = self._by_inode.get(found[:4]) or _digest(path)
        self._keep(found, digest)
        return SnapshotFile(name=path.name, size_bytes=found[2], sha256=digest)

    def require(self, where: str, path: Path, file: SnapshotFile) -> None:
        """Check a file against what was recorded.

        Raises: `CheckpointRefused` with the file's name.
        """
        try:
            found = _identity(path)
            digest = self._known.get(found) or _digest(path)
        except OSError as error:
            raise CheckpointRefused(where, f"{file.name} cannot be read") from error
        if (found[2], digest) != (file.size_bytes, file.sha256):
            raise CheckpointRefused(where, f"{file.name} is damaged")
        self._keep(found, digest)

    def _keep(self, found: Identity, digest: Sha256) -> None:
        if len(self._known) >= _KEPT:
            self._known.clear()
            self._by_inode.clear()
        self._known[found] = digest
        self._by_inode[found[:4]] = digest


def _identity(path: Path) -> Identity:
    found = path.lstat()
    return (
        found.st_dev,
        found.st_ino,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
    )


def _digest(path: Path) -> Sha256:
    digest = sha256()
    with path.open("rb") as source:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
    return Sha256(digest.digest())
