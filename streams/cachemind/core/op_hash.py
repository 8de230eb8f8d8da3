"""The hash that binds an operation's verb, key, payload and time."""

from __future__ import annotations

from typing import Final

from cachemind.core.tagged_hash import tagged_hash
from cachemind.types import Sha256

OP_DOMAIN: Final = b"cachemind/op/v1"
TIMESTAMP_BYTES: Final = 8


def op_hash(verb: str, key: bytes, payload: bytes, timestamp_ns: int) -> Sha256:
    """Return SHA-256 over domain, verb, key, payload and time, each length-prefixed.

    Plain concatenation would let bytes move from one field into the next.

    Units: `timestamp_ns` counts from the Unix epoch (UTC), hashed as 8 bytes
    big-endian. `verb` is hashed as UTF-8.
    Raises: `ValueError` where the time is negative or past 64 bits.
    """
    if not 0 <= timestamp_ns < 1 << 8 * TIMESTAMP_BYTES:
        raise ValueError(f"timestamp_ns must fit 64 unsigned bits, got {timestamp_ns}")
    moment = timestamp_ns.to_bytes(TIMESTAMP_BYTES, "big")
    return tagged_hash(OP_DOMAIN, verb.encode(), key, payload, moment)
