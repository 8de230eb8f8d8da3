"""A P-256 key in this process's memory, and what it signs."""

from __future__ import annotations

from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from cachemind.core.ecdsa_signature import raw_of_numbers
from cachemind.core.public_keys import key_id_of
from cachemind.errors import KeyRefused
from cachemind.receipts import KeyId, Signature

MAX_MESSAGE_BYTES: Final = 4_096
"""What every provider must take. Source: AWS KMS, Sign, MessageType RAW."""

# Nonces from message and key: no weak source of randomness can give the key away.
# Source: RFC 6979.
_ALGORITHM: Final = ec.ECDSA(SHA256(), deterministic_signing=True)


class LocalKey:
    """Signs with a private key that is at hand; any thread may ask.

    OpenSSL keeps the only copy, and overwrites it when the key is closed and freed.
    """

    def __init__(self, private: ec.EllipticCurvePrivateKey) -> None:
        self._private: ec.EllipticCurvePrivateKey | None = private
        self._public_key = private.public_key().public_bytes(
            Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        )
        self._key_id = key_id_of(self._public_key)

    @property
    def key_id(self) -> KeyId:
        """Return the id that follows from the public key."""
        return self._key_id

    @property
    def public_key(self) -> bytes:
        """Return the public key as DER (SPKI)."""
        return self._public_key

    def sign(self, message: bytes) -> Signature:
        """Return the one signature that key and message have (RFC 6979), low s."""
        private = self._private
        if private is None:
            raise KeyRefused(self._key_id, "is closed")
        check_message(self._key_id, message)
        r, s = decode_dss_signature(private.sign(message, _ALGORITHM))
        return Signature(key_id=self._key_id, value=raw_of_numbers(r, s))

    def close(self) -> None:
        """Forget the private key."""
        self._private = None


def check_message(key: str, message: bytes) -> None:
    """Raise `KeyRefused` where `message` is larger than every provider takes."""
    if len(message) > MAX_MESSAGE_BYTES:
        raise KeyRefused(
            key,
            f"signs at most {MAX_MESSAGE_BYTES} bytes, found {len(message)}",
        )
