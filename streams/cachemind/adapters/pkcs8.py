"""Private keys in PKCS#8, encrypted under a passphrase that scrypt makes slow to guess.

`cryptography` writes PBKDF2 with 2,048 rounds, which is quick to guess; it reads
scrypt, and so does `openssl pkcs8`.
"""

from __future__ import annotations

import base64
import os
from hashlib import scrypt
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from cachemind.errors import KeyRefused

COST: Final = 2**14
BLOCKS: Final = 8
LANES: Final = 5
"""16 MiB, which stock OpenSSL still reads. Source: OWASP Password Storage, scrypt."""

_MEMORY_BYTES: Final = 64 * 2**20
_SALT_BYTES: Final = 16
_KEY_BYTES: Final = 32
_LABEL: Final = "ENCRYPTED PRIVATE KEY"
_LINE_CHARS: Final = 64

_PBES2: Final = bytes.fromhex("06092a864886f70d01050d")
_SCRYPT: Final = bytes.fromhex("06092b06010401da47040b")
_AES_256_CBC: Final = bytes.fromhex("060960864801650304012a")
"""Object identifiers in DER. Source: RFC 8018 A.4, RFC 7914 section 7, NIST CSOR."""

_SEQUENCE: Final = 0x30
_INTEGER: Final = 0x02
_OCTETS: Final = 0x04


def encrypted_pem(key: ec.EllipticCurvePrivateKey, passphrase: bytes) -> bytes:
    """Return `key` as PKCS#8 in PEM, encrypted with AES-256 under scrypt.

    Source: RFC 5958 section 3, RFC 8018 section 6.2, RFC 7914 section 7.
    """
    salt, start = os.urandom(_SALT_BYTES), os.urandom(_SALT_BYTES)
    content = _encrypt(
        key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()),
        _stretched(passphrase, salt),
        start,
    )
    costs = b"".join(_integer(cost) for cost in (COST, BLOCKS, LANES))
    stretching = _der(_SEQUENCE, _SCRYPT, _der(_SEQUENCE, _der(_OCTETS, salt), costs))
    cipher = _der(_SEQUENCE, _AES_256_CBC, _der(_OCTETS, start))
    algorithm = _der(_SEQUENCE, _PBES2, _der(_SEQUENCE, stretching, cipher))
    return _pem(_der(_SEQUENCE, algorithm, _der(_OCTETS, content)))


def decrypted(pem: bytes, passphrase: bytes, shown: str) -> ec.EllipticCurvePrivateKey:
    """Return the P-256 key in `pem`, whatever PKCS#8 encryption it has.

    Raises: `KeyRefused` under the name `shown`: not PEM, not encrypted, another
    passphrase, another kind of key.
    """
    if not passphrase:
        raise KeyRefused(shown, "needs a passphrase, found an empty one")
    try:
        key = load_pem_private_key(pem, passphrase)
    except TypeError as error:
        # What the library says of a passphrase that the file has no use for.
        raise KeyRefused(
            shown, "must be encrypted (openssl pkcs8 -topk8 -scrypt)"
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise KeyRefused(
            shown, "is not a private key in PEM, or the passphrase is wrong"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(
        key.curve, ec.SECP256R1
    ):
        raise KeyRefused(shown, "must be an ECDSA key of the curve P-256")
    return key


def _stretched(passphrase: bytes, salt: bytes) -> bytes:
    return scrypt(
        passphrase,
        salt=salt,
        n=COST,
        r=BLOCKS,
        p=LANES,
        maxmem=_MEMORY_BYTES,
        dklen=_KEY_BYTES,
    )


def _encrypt(content: bytes, key: bytes, start: bytes) -> bytes:
    padder = PKCS7(algorithms.AES.block_size).padder()
    padded = padder.update(content) + padder.finalize()
    encryptor = Cipher(algorithms.AES(key), modes.CBC(start)).encryptor()
    return encryptor.update(padded) + encryptor.finalize()


def _der(tag: int, *contents: bytes) -> bytes:
    content = b"".join(contents)
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((tag, 0x80 | len(length))) + length + content


def _integer(number: int) -> bytes:
    return _der(_INTEGER, number.to_bytes(number.bit_length() // 8 + 1))


def _pem(der: bytes) -> bytes:
    text = base64.b64encode(der).decode("ascii")
    lines = [text[at : at + _LINE_CHARS] for at in range(0, len(text), _LINE_CHARS)]
    return "\n".join(
        (f"-----BEGIN {_LABEL}-----", *lines, f"-----END {_LABEL}-----", "")
    ).encode("ascii")
