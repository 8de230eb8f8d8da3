"""The secret that keys prompt hashes and callers' identities."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

from cachemind.errors import InvalidSetting
from cachemind_services.settings import Settings

SECRET_BYTES: Final = 32


def read_secret(settings: Settings) -> bytes:
    """Return the secret, made now where the data folder has none.

    Raises: `InvalidSetting` where it cannot be read, or is not 64 hex characters.
    """
    if settings.secret_file is not None:
        return _read(settings.secret_file)
    path = settings.data_dir / "secret"
    path.parent.mkdir(parents=True, exist_ok=True)
    _create(path)
    return _read(path)


def _create(path: Path) -> None:
    """Write a new secret unless there is one; of two writers one wins, whole."""
    if path.exists():
        return
    scratch = path.with_name(f".secret-{os.getpid()}-{secrets.token_hex(4)}")
    handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(SECRET_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(scratch, path)
        except FileExistsError:
            return
    finally:
        scratch.unlink()


def _read(path: Path) -> bytes:
    name = "CACHEMIND_SECRET_FILE"
    try:
        secret = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except OSError as error:
        raise InvalidSetting(
            name, f"{path} cannot be read: {error.strerror}"
        ) from error
    except ValueError as error:
        raise InvalidSetting(name, f"{path} must hold hex characters only") from error
    if len(secret) != SECRET_BYTES:
        raise InvalidSetting(
            name, f"{path} must hold {2 * SECRET_BYTES} hex characters"
        )
    return secret
