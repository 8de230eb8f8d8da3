"""Keys: what signs, and what wraps the keys that payloads are encrypted under."""

from __future__ import annotations

from typing import Protocol

from cachemind.core.signature_check import SignatureCheck as SignatureCheck
from cachemind.receipts import KeyId, Signature


class SigningKey(Protocol):
    """One ECDSA P-256 key that signs; the private part may be out of reach."""

    @property
    def key_id(self) -> KeyId:
        """Return the id that follows from the public key."""
        ...

    @property
    def public_key(self) -> bytes:
        """Return the public key as DER (SPKI)."""
        ...

    def sign(self, message: bytes) -> Signature:
        """Return the signature over SHA-256 of `message`: raw r || s, low s.

        At most 4,096 bytes, the limit of a KMS. Two signatures over one message may
        differ. Raises: `KeyUnavailable` (a retry may succeed), `KeyRefused` (none
        will: disabled, deleted, not allowed).
        """
        ...

    def close(self) -> None:
        """Leave the provider."""
        ...


class KeyWrapper(Protocol):
    """A key that encrypts small secrets and never leaves its provider."""

    @property
    def wrapper_id(self) -> str:
        """Return the name under which a wrapped key finds its wrapper again."""
        ...

    def wrap(self, secret: bytes, context: bytes) -> bytes:
        """Return `secret` encrypted; `context` is authenticated with it.

        Raises: `KeyUnavailable`, `KeyRefused`.
        """
        ...

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """Return the secret.

        Raises: `KeyUnavailable`; `KeyRefused` where it was changed, wrapped
        elsewhere or under another context.
        """
        ...

    def close(self) -> None:
        """Leave the provider."""
        ...
