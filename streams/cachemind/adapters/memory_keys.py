"""Keys in memory, for unit tests and simulation; they can be told to fail."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cachemind.adapters.local_key import LocalKey
from cachemind.core.ecdsa_signature import ORDER
from cachemind.errors import CacheError, KeyRefused
from cachemind.receipts import Signature

_NONCE: Final = 12


class MemoryKey(LocalKey):
    """The signing key that follows from a name, the same in every process.

    `failure` is raised by every signature while it is set.
    """

    def __init__(self, name: str = "test") -> None:
        seed = int.from_bytes(sha256(b"signing key " + name.encode()).digest())
        super().__init__(ec.derive_private_key(seed % (ORDER - 1) + 1, ec.SECP256R1()))
        self.failure: CacheError | None = None

    def sign(self, message: bytes) -> Signature:
        """Return the signature, or raise what the test set."""
        if self.failure is not None:
            raise self.failure
        return super().sign(message)


class MemoryWrapper:
    """The wrapping key that follows from a name; `failure` is raised while it is set.

    Wraps the same secret under the same context to the same bytes.
    """

    def __init__(self, name: str = "test") -> None:
        self._name = name
        self._key = AESGCM(sha256(b"wrapping key " + name.encode()).digest())
        self.failure: CacheError | None = None

    @property
    def wrapper_id(self) -> str:
        """Return the name it was made with."""
        return f"memory:{self._name}"

    def wrap(self, secret: bytes, context: bytes) -> bytes:
        """Return `secret` encrypted under the key and `context`."""
        self._fail()
        nonce = sha256(context + b"\0" + secret).digest()[:_NONCE]
        return nonce + self._key.encrypt(nonce, secret, context)

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """Return the secret. Raises: `KeyRefused` where it does not authenticate."""
        self._fail()
        try:
            return self._key.decrypt(wrapped[:_NONCE], wrapped[_NONCE:], context)
        except (InvalidTag, ValueError) as error:
            raise KeyRefused(
                self.wrapper_id, "does not fit what was wrapped"
            ) from error

    def close(self) -> None:
        """Keep the key: tests close and go on."""

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure
