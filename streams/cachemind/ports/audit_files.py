"""Where the sealed files of the audit log are, and what the sink reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from cachemind.core.audit_files import AuditStream


class AuditScratch(Protocol):
    """A file that is being written; nobody sees it under its name before `seal`.

    Where it is lost or left behind, the topic has all that is in it.
    """

    def append(self, block: bytes) -> None:
        """Add all of `block`, or nothing of it.

        Raises: `AuditFilesUnavailable`, and the same block may be tried again;
        `AuditScratchLost`.
        """
        ...

    def seal(self, name: str) -> None:
        """Give the file its name for good, once its bytes will outlive a crash.

        Doing it again changes nothing. Raises: `AuditFileTaken` where a file of this
        name has other bytes; `AuditFilesUnavailable`; `AuditScratchLost`.
        """
        ...

    def discard(self) -> None:
        """Take away what is left of it; a sealed file stays. Never fails."""
        ...


class AuditTarget(Protocol):
    """Sealed files, each for good. Folders are streams', see `core.audit_files`.

    Use a stream's files from one thread.
    """

    @property
    def where(self) -> str:
        """Return where that is, for messages: no secret is in it."""
        ...

    def streams(self) -> tuple[Sequence[AuditStream], Sequence[str]]:
        """Return the streams that have a folder, and what else is at their level.

        Raises: `AuditFilesUnavailable`.
        """
        ...

    def names(self, stream: AuditStream) -> Mapping[str, int]:
        """Return the name and the size of all in the stream's folder.

        Without what is being written. Raises: `AuditFilesUnavailable`.
        """
        ...

    def read(self, stream: AuditStream, name: str) -> bytes:
        """Return a file whole.

        Raises: `AuditFileDamaged` where it is not there; `AuditFilesUnavailable`.
        """
        ...

    def begin(self, stream: AuditStream) -> AuditScratch:
        """Begin a file; take away what writers that are dead by now have begun.

        Raises: `AuditFilesUnavailable`.
        """
        ...


class SinkMetrics(Protocol):
    """Where the sink reports; called from several threads."""

    def lag(self, stream: AuditStream, records: int) -> None:
        """`records` at most are on the topic and in no sealed file yet."""
        ...

    def sealed(self, stream: AuditStream, records: int, size_bytes: int) -> None:
        """One more file is sealed."""
        ...

    def irregular(self, stream: AuditStream, records: int) -> None:
        """So many more sealed records do not continue their chain."""
        ...

    def foreign(self, stream: AuditStream, files: int) -> None:
        """So many files in the stream's folder are none of ours."""
        ...

    def stalled(self, stream: AuditStream, reason: str | None) -> None:
        """The stream's files do not go on, for one of few words; None: they do."""
        ...

    def let_go(self, stream: AuditStream) -> None:
        """Another sink has the stream now."""
        ...
