"""Authenticated encryption as core needs it; who does it is an adapter's matter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Aead(Protocol):
    """AES-256-GCM under one key; any thread may ask."""

    def encrypt(self, nonce: bytes, content: bytes, bound: bytes) -> bytes:
        """Return ciphertext and tag; `bound` is authenticated with them."""
        ...

    def decrypt(self, nonce: bytes, sealed: bytes, bound: bytes) -> bytes:
        """Return the content. Raises: `PayloadUnreadable` where it was changed."""
        ...


AeadOf = Callable[[bytes], Aead]
"""Returns the cipher under a key of 32 bytes."""

Random = Callable[[int], bytes]
"""Returns that many unguessable bytes."""
