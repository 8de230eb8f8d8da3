"""The bytes of a secret that was wrapped under a key with AES-256-GCM.

version (1) || nonce (12) || ciphertext || tag (16)
"""

from __future__ import annotations

from typing import Final

from cachemind.core.tagged_hash import pae
from cachemind.errors import InvalidEvent

NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
_VERSION: Final = b"\x01"
_DOMAIN: Final = b"cachemind/wrapped-key/v1"


def bound(wrapper_id: str, context: bytes) -> bytes:
    """Return what is authenticated with a secret: under whose key, and what for."""
    return pae(_DOMAIN, wrapper_id.encode(), context)


def join(nonce: bytes, sealed: bytes) -> bytes:
    """Return the bytes of a wrapped secret."""
    return _VERSION + nonce + sealed


def split(wrapped: bytes) -> tuple[bytes, bytes]:
    """Return nonce, and ciphertext with tag.

    Raises: `InvalidEvent` where the bytes are of another version or too short.
    """
    if wrapped[:1] != _VERSION:
        raise InvalidEvent("wrapped key", "has an unknown version")
    if len(wrapped) < len(_VERSION) + NONCE_BYTES + TAG_BYTES:
        raise InvalidEvent("wrapped key", f"is too short: {len(wrapped)} bytes")
    start = len(_VERSION) + NONCE_BYTES
    return wrapped[len(_VERSION) : start], wrapped[start:]
