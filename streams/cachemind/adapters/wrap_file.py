"""A wrapping key in a file: 32 bytes as hex, readable by their owner alone."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cachemind.adapters.private_file import create_private, read_private
from cachemind.core.tagged_hash import tagged_hash
from cachemind.core.wrapped_key import NONCE_BYTES, bound, join, split
from cachemind.errors import InvalidEvent, KeyRefused

KEY_BYTES: Final = 32
_ID_BYTES: Final = 8


class FileWrapper:
    """Wraps with AES-256-GCM under a key that is at hand; any thread may ask."""

    def __init__(self, key: bytes) -> None:
        self._key: AESGCM | None = AESGCM(key)
        name = tagged_hash(b"cachemind/wrapping-key-name/v1", key)[:_ID_BYTES]
        self._wrapper_id = f"file:{name.hex()}"

    @property
    def wrapper_id(self) -> str:
        """Return a name that follows from the key, wherever its file is."""
        return self._wrapper_id

    def wrap(self, secret: bytes, context: bytes) -> bytes:
        """Return `secret` encrypted under the key, the context with it."""
        nonce = os.urandom(NONCE_BYTES)
        bound_to = bound(self._wrapper_id, context)
        return join(nonce, self._open().encrypt(nonce, secret, bound_to))

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """Return the secret. Raises: `KeyRefused` where it does not authenticate."""
        try:
            nonce, sealed = split(wrapped)
        except InvalidEvent as error:
            raise KeyRefused(self._wrapper_id, error.problem) from error
        try:
            return self._open().decrypt(nonce, sealed, bound(self._wrapper_id, context))
        except InvalidTag as error:
            raise KeyRefused(
                self._wrapper_id,
                "it was changed, wrapped elsewhere or under another context",
            ) from error

    def close(self) -> None:
        """Forget the key."""
        self._key = None

    def _open(self) -> AESGCM:
        if self._key is None:
            raise KeyRefused(self._wrapper_id, "is closed")
        return self._key


def open_wrapper_file(path: Path) -> FileWrapper:
    """Return the wrapper whose key is in the file at `path`.

    Raises: `KeyRefused` where the file is missing, open to others or does not hold
    64 hex characters; `KeyUnavailable`.
    """
    try:
        key = bytes.fromhex(read_private(path).decode("ascii").strip())
    except ValueError as error:
        raise KeyRefused(str(path), "must hold hex characters only") from error
    if len(key) != KEY_BYTES:
        raise KeyRefused(str(path), f"must hold {2 * KEY_BYTES} hex characters")
    return FileWrapper(key)


def create_wrapper_file(path: Path) -> FileWrapper:
    """Return a new wrapper, whose key is in the file at `path` from now on.

    Raises: `KeyRefused` where the file is already there; `KeyUnavailable`.
    """
    key = secrets.token_bytes(KEY_BYTES)
    create_private(path, key.hex().encode("ascii") + b"\n")
    return FileWrapper(key)
