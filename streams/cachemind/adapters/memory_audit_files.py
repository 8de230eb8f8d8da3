"""Sealed audit files in memory, for tests and simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cachemind.core.audit_files import AuditStream
from cachemind.errors import (
    AuditFileDamaged,
    AuditFilesUnavailable,
    AuditFileTaken,
    AuditScratchLost,
)


class MemoryAuditFiles:
    """An `AuditTarget` whose files a test may look at, change and take away.

    `room_bytes` is what more it takes, None for no end; `away` is why nobody answers.
    """

    def __init__(self) -> None:
        self.files: dict[AuditStream, dict[str, bytes]] = {}
        self.room_bytes: int | None = None
        self.away: str | None = None
        self.begun = 0

    @property
    def where(self) -> str:
        """Return that it is nowhere."""
        return "memory"

    def streams(self) -> tuple[Sequence[AuditStream], Sequence[str]]:
        """Return the streams that have files; nothing else is there."""
        self.answer()
        return sorted(self.files, key=lambda stream: stream.folder), ()

    def names(self, stream: AuditStream) -> Mapping[str, int]:
        """Return the name and size of each file."""
        self.answer()
        found = self.files.get(stream, {})
        return {name: len(content) for name, content in found.items()}

    def read(self, stream: AuditStream, name: str) -> bytes:
        """Return a file whole."""
        self.answer()
        try:
            return self.files[stream][name]
        except KeyError as error:
            raise AuditFileDamaged(f"{stream.folder}/{name}", "is missing") from error

    def begin(self, stream: AuditStream) -> MemoryScratch:
        """Begin a file."""
        self.answer()
        self.begun += 1
        return MemoryScratch(self, stream)

    def answer(self) -> None:
        """Raises: `AuditFilesUnavailable` while away."""
        if self.away is not None:
            raise AuditFilesUnavailable(self.where, self.away)


class MemoryScratch:
    """An `AuditScratch` of a `MemoryAuditFiles`."""

    def __init__(self, target: MemoryAuditFiles, stream: AuditStream) -> None:
        self._target = target
        self._stream = stream
        self._content: bytes | None = b""
        self._sealed_as: str | None = None

    def append(self, block: bytes) -> None:
        """Add all of `block`, or nothing where there is no room for it."""
        self._target.answer()
        content, room = self._held(), self._target.room_bytes
        if room is not None:
            if len(block) > room:
                raise AuditFilesUnavailable(self._target.where, "no room left")
            self._target.room_bytes = room - len(block)
        self._content = content + block

    def seal(self, name: str) -> None:
        """Give the file its name for good."""
        if self._sealed_as == name:
            return
        self._target.answer()
        content = self._held()
        files = self._target.files.setdefault(self._stream, {})
        if files.setdefault(name, content) != content:
            raise AuditFileTaken(f"{self._stream.folder}/{name}")
        self._sealed_as = name
        self._content = None

    def discard(self) -> None:
        """Forget what was written; its room is free again."""
        if self._content is not None and self._target.room_bytes is not None:
            self._target.room_bytes += len(self._content)
        self._content = None

    def _held(self) -> bytes:
        if self._content is None:
            raise AuditScratchLost(self._target.where, "it was given up")
        return self._content
