"""AES-256-GCM by OpenSSL, through `cryptography`."""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cachemind.core.sealed_payload import Unreadable
from cachemind.errors import PayloadUnreadable


class AesGcm:
    """An `Aead` under one key of 32 bytes; any thread may ask."""

    __slots__ = ("_cipher",)

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def encrypt(self, nonce: bytes, content: bytes, bound: bytes) -> bytes:
        """Return ciphertext and tag."""
        return self._cipher.encrypt(nonce, content, bound)

    def decrypt(self, nonce: bytes, sealed: bytes, bound: bytes) -> bytes:
        """Return the content. Raises: `PayloadUnreadable` where it was changed."""
        try:
            return self._cipher.decrypt(nonce, sealed, bound)
        except InvalidTag as error:
            raise PayloadUnreadable(Unreadable.DAMAGED) from error
