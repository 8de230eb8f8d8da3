"""Checks signatures against public keys, by OpenSSL."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
)

from cachemind.core.ecdsa_signature import der_of_raw, is_raw_low_s
from cachemind.errors import InvalidEvent
from cachemind.receipts import SIGNATURE_BYTES

KEYS_KEPT: Final = 256
"""Loading a key costs as much as checking a signature; an installation has a few."""

_SHA256: Final = ec.ECDSA(SHA256())


class OpensslCheck:
    """Says which signatures hold. Has no state of its own; any thread may ask."""

    def ecdsa(self, public_key: bytes, message: bytes, signature: bytes) -> bool:
        """Return whether `signature` is one of P-256 and SHA-256 over `message`.

        Only raw r || s with a low s holds. Raises: `InvalidEvent` naming the field
        `public_key` where that is not a P-256 key in DER (SPKI).
        """
        key = _p256(public_key)
        if not is_raw_low_s(signature):
            return False
        try:
            key.verify(der_of_raw(signature), message, _SHA256)
        except InvalidSignature:
            return False
        return True

    def ed25519(self, public_key: bytes, message: bytes, signature: bytes) -> bool:
        """Return whether `signature` is one of Ed25519 over `message`.

        Raises: `InvalidEvent` naming the field `public_key` where that is not an
        Ed25519 key in DER (SPKI).
        """
        key = _ed25519(public_key)
        if len(signature) != SIGNATURE_BYTES:
            return False
        try:
            key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


def check_p256(public_key: bytes) -> None:
    """Raise `InvalidEvent` where a public key is not P-256 in its one encoding."""
    _p256(public_key)


@lru_cache(KEYS_KEPT)
def _p256(public_key: bytes) -> ec.EllipticCurvePublicKey:
    key = _load(public_key)
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(
        key.curve, ec.SECP256R1
    ):
        raise InvalidEvent("public_key", "is not an ECDSA key of the curve P-256")
    _demand_one_encoding(key, public_key)
    return key


@lru_cache(KEYS_KEPT)
def _ed25519(public_key: bytes) -> ed25519.Ed25519PublicKey:
    key = _load(public_key)
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise InvalidEvent("public_key", "is not an Ed25519 key")
    _demand_one_encoding(key, public_key)
    return key


def _load(public_key: bytes) -> object:
    try:
        return load_der_public_key(public_key)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidEvent("public_key", "is not a public key in DER (SPKI)") from error


def _demand_one_encoding(
    key: ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey, public_key: bytes
) -> None:
    """Let no second encoding pass: the key would have a second id."""
    encoded = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if encoded != public_key:
        raise InvalidEvent("public_key", "is not in its one encoding (SPKI in DER)")
