"""A local file of records that nobody changes unseen: each under a MAC, and chained.

file   = "CMSEAL1\\n" || first seq (8) || chain (32) || record ..
record = body size (4) || key id (8) || seq (8) || body || MAC (32)
MAC    = HMAC-SHA256(key, "cachemind/seal/v1" || chain || record without its MAC)
chain  = SHA-256 of the whole record before, MAC included; for the first of a file
         SHA-256 of the head, which holds the chain that the file before ended with.

Numbers are big-endian. The key's id is under the MAC, and each MAC covers all of the
record before: also a record whose key is unknown here is held by the next one whose
key is known. What was cut off the end at a record's edge nobody can see from the file
alone: note `SealReport.records` and `chain` elsewhere.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from struct import Struct
from typing import Final

from cachemind.core.tagged_hash import tagged_hash
from cachemind.errors import InvalidEvent
from cachemind.types import HASH_BYTES, Sha256

MAGIC: Final = b"CMSEAL1\n"
MAX_BODY_BYTES: Final = 2**24
SECRET_BYTES: Final = 32
KEY_ID_BYTES: Final = 8
NO_CHAIN: Final = Sha256(bytes(HASH_BYTES))
"""What the first file of all begins with."""

_DOMAIN: Final = b"cachemind/seal/v1"
_HEAD: Final = Struct(f">8sQ{HASH_BYTES}s")
_FRONT: Final = Struct(f">I{KEY_ID_BYTES}sQ")
HEAD_BYTES: Final = _HEAD.size

Read = Callable[[int], bytes]
"""Returns the next so many bytes, fewer only at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealKey:
    """A key that seals, and the id that follows from it."""

    key_id: bytes
    secret: bytes = field(repr=False)


SealKeys = Mapping[bytes, SealKey]
"""Keys by their ids."""


class SealOutcome(StrEnum):
    """What a file is worth."""

    OK = "ok"
    TAMPERED = "tampered"
    UNVERIFIABLE = "unverifiable"


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedRecord:
    """One record as it is in the file, and how much of the file it ends."""

    key_id: bytes
    seq: int
    body: bytes
    raw: bytes
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SealReport:
    """What a file is worth, where it ends and what is wrong first.

    `good_bytes` of it are whole records; `torn_bytes` are behind them, from a write
    that a crash ended, or cut.
    """

    outcome: SealOutcome
    first_seq: int
    records: int
    chain: Sha256
    good_bytes: int
    torn_bytes: int
    problem: str = ""


def seal_key(secret: bytes) -> SealKey:
    """Return the key with that secret, which must be 32 bytes.

    Raises: `InvalidEvent`.
    """
    if len(secret) != SECRET_BYTES:
        raise InvalidEvent("sealing key", f"must be {SECRET_BYTES} bytes")
    key_id = tagged_hash(b"cachemind/sealing-key-id/v1", secret)[:KEY_ID_BYTES]
    return SealKey(key_id=key_id, secret=secret)


def head_of(first_seq: int, chain: Sha256) -> bytes:
    """Return how a file begins that goes on where another one ended."""
    return _HEAD.pack(MAGIC, first_seq, chain)


def chain_after(written: bytes) -> Sha256:
    """Return the chain behind a head or a record."""
    return Sha256(sha256(written).digest())


def sealed(key: SealKey, chain: Sha256, seq: int, body: bytes) -> bytes:
    """Return the record that holds `body`. Raises: `InvalidEvent` above 16 MiB."""
    if len(body) > MAX_BODY_BYTES:
        raise InvalidEvent(
            "body", f"must be at most {MAX_BODY_BYTES} bytes, found {len(body)}"
        )
    record = _FRONT.pack(len(body), key.key_id, seq) + body
    return record + _mac(key, chain, record)


class SealCheck:
    """Goes through a file once: take all `records`, then ask for the `report`.

    Steps, for each record in order:

    1. it is whole; 2. its seq is the next one; 3. its key is known; 4. its MAC holds
    over the chain. After the first that fails in 1, 2 or 4 nothing more is yielded.
    """

    def __init__(self, read: Read, keys: SealKeys) -> None:
        self._read = read
        self._keys = keys
        self._first = self._seq = 0
        self._chain = NO_CHAIN
        self._before = NO_CHAIN
        self._good = self._torn = 0
        self._unknown: dict[bytes, int] = {}
        self._tampered = ""
        self._ends_early = False

    @property
    def before(self) -> Sha256:
        """Return the chain that the file before must have ended with."""
        return self._before

    def records(self) -> Iterator[SealedRecord]:
        """Yield every record up to the first that does not hold."""
        if not self._open():
            return
        while (record := self._next()) is not None:
            problem = self._problem(record)
            if problem:
                self._tampered = f"record {record.seq}: {problem}"
                return
            self._seq += 1
            self._chain = chain_after(record.raw)
            self._good = record.end
            yield record

    def report(self) -> SealReport:
        """Return what was found, once all records were taken."""
        return SealReport(
            outcome=self._outcome(),
            first_seq=self._first,
            records=self._seq - self._first,
            chain=self._chain,
            good_bytes=self._good,
            torn_bytes=self._torn,
            problem=self._words(),
        )

    def _open(self) -> bool:
        head = self._read(HEAD_BYTES)
        if len(head) < HEAD_BYTES and MAGIC.startswith(head[: len(MAGIC)]):
            self._torn, self._ends_early = len(head), True
            return False
        if len(head) < HEAD_BYTES or head[: len(MAGIC)] != MAGIC:
            self._tampered = "is not a sealed file"
            return False
        _, self._first, before = _HEAD.unpack(head)
        self._seq, self._before = self._first, Sha256(before)
        self._chain, self._good = chain_after(head), HEAD_BYTES
        return True

    def _next(self) -> SealedRecord | None:
        front = self._read(_FRONT.size)
        if len(front) < _FRONT.size:
            self._torn, self._ends_early = len(front), bool(front)
            return None
        size, key_id, seq = _FRONT.unpack(front)
        if size > MAX_BODY_BYTES:
            self._tampered = f"record {self._seq}: has an impossible size"
            return None
        rest = self._read(size + HASH_BYTES)
        if len(rest) < size + HASH_BYTES:
            self._torn, self._ends_early = len(front) + len(rest), True
            return None
        raw = front + rest
        return SealedRecord(
            key_id=key_id,
            seq=seq,
            body=rest[:size],
            raw=raw,
            end=self._good + len(raw),
        )

    def _problem(self, record: SealedRecord) -> str:
        if record.seq != self._seq:
            return f"expected {self._seq} here"
        key = self._keys.get(record.key_id)
        if key is None:
            self._unknown.setdefault(record.key_id, record.seq)
            return ""
        mac = _mac(key, self._chain, record.raw[:-HASH_BYTES])
        holds = hmac.compare_digest(mac, record.raw[-HASH_BYTES:])
        return "" if holds else "it, or the one before, was changed"

    def _outcome(self) -> SealOutcome:
        if self._tampered:
            return SealOutcome.TAMPERED
        if self._unknown or self._ends_early:
            return SealOutcome.UNVERIFIABLE
        return SealOutcome.OK

    def _words(self) -> str:
        if self._tampered:
            return self._tampered
        words = [
            f"record {seq} and others are sealed by an unknown key {key_id.hex()}"
            for key_id, seq in self._unknown.items()
        ]
        if self._ends_early:
            words.append(f"ends with {self._torn} bytes of a record that is not whole")
        return "; ".join(words)


def _mac(key: SealKey, chain: Sha256, record: bytes) -> bytes:
    return hmac.digest(key.secret, _DOMAIN + chain + record, "sha256")
