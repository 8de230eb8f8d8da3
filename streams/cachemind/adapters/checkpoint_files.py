"""The files of a checkpoint: their hashes, and whether they still have them.

A file that is linked from the live store is immutable and large. Its hash is taken
once in a process: it is the same file as long as device, inode, size and the time of
its last write are. The time of its last change must be the same too, unless a link to
it was made or went away, which sets that time: so it is with each file that the live
store gives up. What slips through, a write whose traces somebody removed, is found by
the state's digest before anything of it is used.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from cachemind.core.snapshots import SnapshotFile
from cachemind.errors import CheckpointRefused
from cachemind.types import Sha256

_CHUNK_BYTES: Final = 4 * 2**20
_KEPT: Final = 10_000
Identity = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class _Hashed:
    """A hash, and what changes along with the file or its links."""

    digest: Sha256
    changed_ns: int
    links: int


class KnownHashes:
    """The hashes taken in this process, by what tells one file from another."""

    def __init__(self) -> None:
        self._known: dict[Identity, _Hashed] = {}

    def new(self, path: Path) -> SnapshotFile:
        """Return what is to be recorded of a file that was just linked or written.

        Raises: `OSError`.
        """
        found = path.lstat()
        return SnapshotFile(
            name=path.name, size_bytes=found.st_size, sha256=self._hash(path, found)
        )

    def require(self, where: str, path: Path, file: SnapshotFile) -> None:
        """Check a file against what was recorded.

        Raises: `CheckpointRefused` with the file's name.
        """
        try:
            found = path.lstat()
            digest = self._hash(path, found)
        except OSError as error:
            raise CheckpointRefused(where, f"{file.name} cannot be read") from error
        if (found.st_size, digest) != (file.size_bytes, file.sha256):
            raise CheckpointRefused(where, f"{file.name} is damaged")

    def _hash(self, path: Path, found: os.stat_result) -> Sha256:
        identity = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
        known = self._known.get(identity)
        if known is None or (
            known.changed_ns != found.st_ctime_ns and known.links == found.st_nlink
        ):
            digest = _digest(path)
        else:
            digest = known.digest
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[identity] = _Hashed(digest, found.st_ctime_ns, found.st_nlink)
        return digest


def _digest(path: Path) -> Sha256:
    digest = sha256()
    with path.open("rb") as source:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
    return Sha256(digest.digest())
