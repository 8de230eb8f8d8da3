"""Single flight across the worker processes of one host.

Each key has one byte of a shared file; who fetches an answer locks that byte. The
kernel releases a dead worker's locks. Locks belong to the open file, so a worker never
waits for itself: single flight within it is the flights' matter.

The file's bytes say where the last answers were stored, so that the next worker waits
for just that offset to be folded. It is a hint: a slot may hold another key's.
Source: fcntl(2), "Open file description locks".
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from cachemind.types import ExactKey, Offset

_FLOCK: Final = struct.Struct("hhqqi4x")
_OFFSET_BYTES: Final = 7
_SLOT: Final = struct.Struct(">16sq")
_SLOTS: Final = 4096
POLL_S: Final = 0.01


class Turns:
    """Whose turn it is to fetch an answer, over all workers that share `path`."""

    def __init__(self, path: Path) -> None:
        """Open the file, made where it is not there. Raises: `OSError`."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @asynccontextmanager
    async def take(self, key: ExactKey, wait_s: float) -> AsyncIterator[bool]:
        """Hold the turn for `key` meanwhile; yield whether another had it before.

        After `wait_s` go ahead without it: the other one may hang.
        """
        offset = int.from_bytes(key[:_OFFSET_BYTES], "big")
        until = asyncio.get_running_loop().time() + wait_s
        waited = False
        held = self._try(offset)
        while not held and asyncio.get_running_loop().time() < until:
            waited = True
            await asyncio.sleep(POLL_S)
            held = self._try(offset)
        try:
            yield waited
        finally:
            if held:
                self._set(offset, fcntl.F_UNLCK)

    def stored(self, key: ExactKey, offset: Offset) -> None:
        """Tell the others where the answer for `key` is on the log."""
        slot = _SLOT.pack(key[: _SLOT.size - 8], offset)
        os.pwrite(self._fd, slot, _place(key))

    def stored_at(self, key: ExactKey) -> Offset | None:
        """Return where another worker stored the answer for `key`, if it said so."""
        slot = os.pread(self._fd, _SLOT.size, _place(key))
        if len(slot) < _SLOT.size:
            return None
        known, offset = _SLOT.unpack(slot)
        return Offset(offset) if known == key[: len(known)] else None

    def close(self) -> None:
        """Let go of every turn."""
        os.close(self._fd)

    def _try(self, offset: int) -> bool:
        try:
            self._set(offset, fcntl.F_WRLCK)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _set(self, offset: int, kind: int) -> None:
        request = _FLOCK.pack(kind, os.SEEK_SET, offset, 1, 0)
        fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, request)


def _place(key: ExactKey) -> int:
    return int.from_bytes(key[-4:], "big") % _SLOTS * _SLOT.size
