"""A witness's own files: its key, and the last checkpoint that it has signed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from cachemind.adapters.file_lock import exclusive
from cachemind.adapters.file_sync import write_whole
from cachemind.adapters.private_file import create_private, read_private
from cachemind.core.checkpoint_note import Checkpoint
from cachemind.errors import KeyRefused, MalformedNote, WitnessRefused


class WitnessKeyFile:
    """An Ed25519 key in a file (PKCS#8, PEM) that its owner alone may read."""

    def __init__(self, path: Path) -> None:
        """Read the key. Raises: `KeyRefused`, `KeyUnavailable`."""
        try:
            key = load_pem_private_key(read_private(path), password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise KeyRefused(str(path), "is no key in PEM") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise KeyRefused(str(path), "must be an Ed25519 key")
        self._key = key

    @property
    def public_key(self) -> bytes:
        """Return the public key as DER (SPKI)."""
        return self._key.public_key().public_bytes(
            Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        )

    def sign(self, message: bytes) -> bytes:
        """Return the signature over `message`."""
        return self._key.sign(message)


def create_witness_key(path: Path) -> WitnessKeyFile:
    """Make a key. Raises: `KeyRefused` where the file is there, `KeyUnavailable`."""
    pem = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    create_private(path, pem)
    return WitnessKeyFile(path)


class WitnessMemory:
    """The last checkpoint that a witness signed, as text in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let no other process read or write the file meanwhile.

        Raises: `StoreLocked`, `StoreUnavailable`.
        """
        with exclusive(self._path.with_name(self._path.name + ".lock")):
            yield

    def load(self) -> Checkpoint | None:
        """Return the checkpoint, None for a witness that has signed none yet.

        Raises: `WitnessRefused` where the file says none: who could begin anew there
        could be made to sign a second history.
        """
        try:
            return Checkpoint.parse(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError, MalformedNote) as error:
            raise WitnessRefused(f"{self._path}: {error}") from error

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint, whole and on disk. Raises: `WitnessRefused`."""
        try:
            write_whole(self._path, str(checkpoint).encode())
        except OSError as error:
            raise WitnessRefused(f"{self._path}: {error.strerror}") from error
