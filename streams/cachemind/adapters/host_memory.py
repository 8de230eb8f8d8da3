"""A few bytes that this host keeps over restarts, in a file."""

from __future__ import annotations

from pathlib import Path

from cachemind.adapters.file_sync import write_whole
from cachemind.errors import StoreUnavailable


class HostMemoryFile:
    """A `HostMemory` in the file at `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> bytes | None:
        """Return what was saved last. Raises: `StoreUnavailable`."""
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreUnavailable(f"{self._path}: {error}") from error

    def save(self, content: bytes) -> None:
        """Replace what is kept. Raises: `StoreUnavailable`."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, content)
        except OSError as error:
            raise StoreUnavailable(f"{self._path}: {error}") from error


class MemoryHostMemory:
    """A `HostMemory` for tests; lost with the process."""

    def __init__(self) -> None:
        self.content: bytes | None = None

    def load(self) -> bytes | None:
        """Return what was saved last."""
        return self.content

    def save(self, content: bytes) -> None:
        """Replace what is kept."""
        self.content = content
