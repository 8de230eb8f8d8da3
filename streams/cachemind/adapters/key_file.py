"""Signing keys in files: PKCS#8 in PEM, encrypted, readable by their owner alone."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from cachemind.adapters.local_key import LocalKey
from cachemind.adapters.pkcs8 import decrypted, encrypted_pem
from cachemind.adapters.private_file import create_private, read_private
from cachemind.errors import KeyRefused


def open_key_file(path: Path, passphrase: bytes) -> LocalKey:
    """Return the key in the file at `path`.

    Raises: `KeyRefused` where the file is missing, open to others, not encrypted,
    under another passphrase, or not a P-256 key; `KeyUnavailable`.
    """
    return LocalKey(decrypted(read_private(path), passphrase, str(path)))


def create_key_file(path: Path, passphrase: bytes) -> LocalKey:
    """Return a new key, which is in the file at `path` from now on.

    Raises: `KeyRefused` where the file is already there; `KeyUnavailable`.
    """
    private = ec.generate_private_key(ec.SECP256R1())
    return _write(path, private, passphrase)


def new_key_file(folder: Path, role: str, passphrase: bytes) -> LocalKey:
    """Return a new key, which is in a file named after its role and its id.

    Raises: see `create_key_file`.
    """
    private = ec.generate_private_key(ec.SECP256R1())
    path = folder / f"{role}-{LocalKey(private).key_id}.pem"
    return _write(path, private, passphrase)


def _write(
    path: Path, private: ec.EllipticCurvePrivateKey, passphrase: bytes
) -> LocalKey:
    if not passphrase:
        raise KeyRefused(str(path), "needs a passphrase, found an empty one")
    create_private(path, encrypted_pem(private, passphrase))
    return LocalKey(private)
