"""SHA-256 over lists of byte strings that no other list can imitate."""

from __future__ import annotations

from hashlib import sha256
from struct import Struct

from cachemind.types import Sha256

_le64 = Struct("<Q").pack


def pae(*pieces: bytes) -> bytes:
    """Return the pieces behind their count and their lengths, so that it is injective.

    Units: count and lengths are 64-bit little-endian.
    Source: PASETO, "Pre-Authentication Encoding" (PAE).
    """
    framed = [_le64(len(pieces))]
    for piece in pieces:
        framed += (_le64(len(piece)), piece)
    return b"".join(framed)


def tagged_hash(domain: bytes, *pieces: bytes) -> Sha256:
    """Return SHA-256 of the PAE of `domain` and `pieces`.

    A domain names one use and its version (`cachemind/turn/v1`), so that a hash
    made for one purpose can never stand for another.
    """
    return Sha256(sha256(pae(domain, *pieces)).digest())
