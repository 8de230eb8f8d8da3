"""The file that a stream's records go into until it is sealed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Final

from cachemind.codec.audit_file import FileEncoder, FileRecord
from cachemind.core.audit_files import AuditStream, FileName, Link, Tally, counted
from cachemind.core.audit_manifest import LogOrigin, Resumption, SealedFile
from cachemind.errors import AuditFilesError
from cachemind.ports import LogRecord
from cachemind.ports.audit_files import AuditScratch, AuditTarget
from cachemind.types import Sha256

BLOCK_BYTES: Final = 64 * 1024
"""Records wait in memory until they make a block of this size, or the file is sealed:
only a sealed file counts, and many small blocks cost room."""


class OpenFile:
    """One file of `stream`, begun after `done`. `begun_ms` is when, by our clock.

    What it could not write yet stays with it: any call may be made again.
    """

    def __init__(
        self,
        target: AuditTarget,
        origin: LogOrigin,
        stream: AuditStream,
        done: Resumption,
        begun_ms: int,
    ) -> None:
        self._target = target
        self._stream = stream
        self._encoder = FileEncoder(origin, stream, done.number)
        self._first = done.number
        self._scratch: AuditScratch | None = None
        self._pending: list[FileRecord] = []
        self._pending_bytes = 0
        self._unwritten = self._encoder.header
        self._digest = sha256()
        self._written_bytes = 0
        self.tally: Tally = Tally(chain=done.chain)
        self.oldest_ms: int = begun_ms

    @property
    def size_bytes(self) -> int:
        """Return about how large it is, with what waits in memory."""
        return self._written_bytes + len(self._unwritten) + self._pending_bytes

    @property
    def name(self) -> FileName:
        """Return what it would be called now. It has at least one record."""
        return FileName(self._first, self._first + self.tally.records - 1)

    def add(self, record: LogRecord, link: Link | None) -> None:
        """Take one more record. Call `relieve` before."""
        self._pending.append((record.lsn.offset, record.value))
        self._pending_bytes += len(record.value or b"") + 16
        self.tally = counted(self.tally, [(record.lsn.offset, link)])
        if record.timestamp_ms >= 0:
            self.oldest_ms = min(self.oldest_ms, record.timestamp_ms)

    def relieve(self) -> None:
        """Write what makes a block. Raises: as `AuditScratch.append`, and `begin`."""
        if len(self._unwritten) + self._pending_bytes >= BLOCK_BYTES:
            self._flush()

    def seal(self) -> SealedFile:
        """Write the rest and give the file its name.

        Raises: as `AuditTarget.begin`, `AuditScratch.append` and `AuditScratch.seal`.
        """
        scratch = self._flush()
        scratch.seal(str(self.name))
        return SealedFile(
            name=self.name,
            size_bytes=self._written_bytes,
            sha256=Sha256(self._digest.digest()),
        )

    def discard(self) -> None:
        """Give up what is not sealed."""
        if self._scratch is not None:
            with suppress(AuditFilesError):
                self._scratch.discard()
            self._scratch = None

    def _flush(self) -> AuditScratch:
        if self._pending:
            self._unwritten += self._encoder.block(self._pending)
            self._pending, self._pending_bytes = [], 0
        if self._scratch is None:
            self._scratch = self._target.begin(self._stream)
        if self._unwritten:
            self._scratch.append(self._unwritten)
            self._digest.update(self._unwritten)
            self._written_bytes += len(self._unwritten)
            self._unwritten = b""
        return self._scratch


def put_small(
    target: AuditTarget, stream: AuditStream, name: str, content: bytes
) -> None:
    """Seal a file that is at hand whole. Raises: as `OpenFile.seal`."""
    scratch = target.begin(stream)
    try:
        scratch.append(content)
        scratch.seal(name)
    finally:
        scratch.discard()


def values_of(records: Sequence[LogRecord]) -> list[FileRecord]:
    """Return what a file holds of `records`."""
    return [(record.lsn.offset, record.value) for record in records]
