"""The state digest: one number for all entries of a namespace, kept up in O(1).

Each entry contributes SHA-256 over a domain tag, its length-prefixed key and its
value, read as a big-endian integer; the digest is the sum modulo 2**256. Addition
commutes and has an inverse, so order does not matter and an entry can leave.

It finds accidents (a lost write, a torn batch, a fold that differs). Additive hashes
of 256 bits do not resist someone who chooses many entries (Wagner 2002, "A
generalized birthday problem"); tampering is what receipts are for.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from cachemind.types import HASH_BYTES

DOMAIN: Final = b"cachemind.state-digest.v1\x00"
MODULUS: Final = 1 << (8 * HASH_BYTES)
EMPTY_DIGEST: Final = 0


def term(key: bytes, value: bytes) -> int:
    """Return what one entry contributes, 0 .. 2**256-1."""
    whole = b"".join((DOMAIN, len(key).to_bytes(8, "big"), key, value))
    return int.from_bytes(sha256(whole).digest(), "big")


def add(digest: int, key: bytes, value: bytes) -> int:
    """Return the digest with the entry in it."""
    return (digest + term(key, value)) % MODULUS


def remove(digest: int, key: bytes, value: bytes) -> int:
    """Return the digest without the entry, which must be in it."""
    return (digest - term(key, value)) % MODULUS


def digest_of(entries: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the digest of (key, value) pairs in any order."""
    return sum(term(key, value) for key, value in entries) % MODULUS


def to_bytes(digest: int) -> bytes:
    """Return 32 bytes, big-endian."""
    return digest.to_bytes(HASH_BYTES, "big")


def to_hex(digest: int) -> str:
    """Return 64 lower-case hex characters."""
    return to_bytes(digest).hex()
