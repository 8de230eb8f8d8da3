"""What says whether a signature holds."""

from __future__ import annotations

from typing import Protocol


class SignatureCheck(Protocol):
    """Says which signatures hold against a public key in DER (SPKI).

    Both raise `InvalidEvent` naming the field `public_key` where the key is none of
    their kind; a signature that does not hold, of whatever bytes, is no error.
    """

    def ecdsa(self, public_key: bytes, message: bytes, signature: bytes) -> bool:
        """Return whether raw r || s, low s, is one of P-256/SHA-256 over `message`."""
        ...

    def ed25519(self, public_key: bytes, message: bytes, signature: bytes) -> bool:
        """Return whether `signature` is one of Ed25519 over `message`."""
        ...
