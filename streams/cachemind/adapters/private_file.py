"""Small files that only their owner may read, such as keys and passphrases."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import Final

from cachemind.adapters.file_sync import sync_folder
from cachemind.errors import KeyRefused, KeyUnavailable

OWNER_ONLY: Final = 0o600
MAX_BYTES: Final = 65_536

_WRONG_PATH: Final = (
    FileNotFoundError,
    PermissionError,
    NotADirectoryError,
    IsADirectoryError,
)
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def read_private(path: Path) -> bytes:
    """Return the content of a file that nobody but its owner can get at.

    Raises: `KeyRefused` where it is missing, no regular file, open to others or
    larger than 64 KiB; `KeyUnavailable` where the disk does not give it.
    """
    try:
        # Without waiting: a named pipe would keep us until somebody writes.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            _demand_private(path, os.fstat(descriptor))
            content = file.read(MAX_BYTES + 1)
    except _WRONG_PATH as error:
        raise KeyRefused(str(path), f"cannot be read: {error.strerror}") from error
    except OSError as error:
        raise KeyUnavailable(str(path), f"cannot be read: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise KeyRefused(str(path), f"must be at most {MAX_BYTES} bytes")
    return content


def create_private(path: Path, content: bytes) -> None:
    """Make a file that only its owner can read: whole, on disk, and never over another.

    Makes the folders above it, which nobody else may look into. Raises: `KeyRefused`
    where the file is already there; `KeyUnavailable` where the disk does not take it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise KeyUnavailable(
            str(path.parent), f"cannot be made: {error.strerror}"
        ) from error
    scratch = path.with_name(f".{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        _write(scratch, content)
        os.link(scratch, path)
        sync_folder(path.parent)
    except FileExistsError as error:
        raise KeyRefused(str(path), "is already there and is not replaced") from error
    except OSError as error:
        raise KeyUnavailable(
            str(path), f"cannot be written: {error.strerror}"
        ) from error
    finally:
        scratch.unlink(missing_ok=True)


def _demand_private(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise KeyRefused(str(path), "must be a regular file")
    mode = stat.S_IMODE(found.st_mode)
    if mode & _OTHERS:
        raise KeyRefused(
            str(path),
            f"must be readable by its owner alone (chmod 600), found mode {mode:04o}",
        )


def _write(path: Path, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, OWNER_ONLY), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
