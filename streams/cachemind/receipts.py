"""What is signed: receipts, cuts and key events, as frozen values.

A receipt is about one WAL record, whatever is in it. A cut is about all receipts so
far. Times are claims of the writer's clock; the order is `seq` and `index`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final, NewType

from cachemind.errors import InvalidEvent
from cachemind.types import (
    HASH_BYTES,
    ID_BYTES,
    Lsn,
    Namespace,
    Partition,
    Principal,
    Sha256,
    Timeline,
    TraceId,
    WriterId,
)

KeyId = NewType("KeyId", str)
"""The first 8 bytes of SHA-256 over the public key's DER (SPKI), as 16 hex."""

LogId = NewType("LogId", str)
"""Names one audit log; the origin line of its checkpoints."""

Seq = NewType("Seq", int)
"""A receipt's place in its partition: dense, from 0. Not a Kafka offset."""

CutIndex = NewType("CutIndex", int)
"""A leaf's place in the log of cuts and key events: dense, from 0."""

SYSTEM_NAMESPACE: Final = Namespace("cachemind.system")
"""Holds what concerns the whole installation, such as key events."""

SIGNATURE_BYTES: Final = 64
KEY_ID_CHARS: Final = 16
NO_LEAF: Final = Sha256(bytes(HASH_BYTES))
"""Stands for the leaf before the first."""

UNREADABLE: Final = "unreadable"
"""The `kind` of a receipt over a record that could not be decoded."""

_HEX: Final = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptItem:
    """One operation of the record that a receipt is about.

    `occurred_at_us` is in microseconds since the Unix epoch (UTC). `outcome` is a
    `Read`'s, the word for what else was done otherwise. `context_hash` is the
    context key where the event has one, else the exact key, which commits to it.
    """

    trace_id: TraceId
    principal: Principal
    occurred_at_us: int
    outcome: str
    context_hash: Sha256 | None
    prompt_hash: Sha256 | None
    response_hash: Sha256 | None

    def __post_init__(self) -> None:
        _size("trace_id", self.trace_id, ID_BYTES)
        _at_least("occurred_at_us", self.occurred_at_us, 0)
        for name in ("context_hash", "prompt_hash", "response_hash"):
            value = getattr(self, name)
            if value is not None:
                _size(name, value, HASH_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The statement about one WAL record.

    `record_hash` is SHA-256 of the exact value bytes on the WAL (of no bytes where
    the record has no value). `previous` is the leaf hash of `seq - 1`, `NO_LEAF` for
    the first. `kind` is `core.fold.kind_of`'s word, or `UNREADABLE`, and then what
    comes from the event is empty. `op_hash` is the envelope's own.
    """

    log_id: LogId
    partition: Partition
    seq: Seq
    previous: Sha256
    source_topic: str
    source: Lsn
    record_hash: Sha256
    kind: str
    namespace: str
    timeline: Timeline
    writer: WriterId
    op_hash: Sha256 | None
    items: tuple[ReceiptItem, ...]
    signed_at_ns: int
    key_id: KeyId

    def __post_init__(self) -> None:
        _at_least("partition", self.partition, 0)
        _at_least("seq", self.seq, 0)
        _at_least("signed_at_ns", self.signed_at_ns, 0)
        _size("previous", self.previous, HASH_BYTES)
        _size("record_hash", self.record_hash, HASH_BYTES)
        if self.op_hash is not None:
            _size("op_hash", self.op_hash, HASH_BYTES)
        check_key_id(self.key_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """An ECDSA P-256/SHA-256 signature: raw r || s, 64 bytes, low s."""

    key_id: KeyId
    value: bytes

    def __post_init__(self) -> None:
        check_key_id(self.key_id)
        _size("signature", self.value, SIGNATURE_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedReceipt:
    """A receipt's exact bytes and the signature beside them, which no hash covers."""

    receipt: bytes
    signature: Signature


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHead:
    """How many receipts a partition has, and their RFC 9162 root.

    `frontier` are the roots of the complete subtrees, largest first, from which the
    root follows and the tree grows on: as many as `size` has one bits.
    """

    partition: Partition
    size: int
    root: Sha256
    frontier: tuple[Sha256, ...]

    def __post_init__(self) -> None:
        _at_least("partition", self.partition, 0)
        _at_least("size", self.size, 0)
        _size("root", self.root, HASH_BYTES)
        if len(self.frontier) != self.size.bit_count():
            raise InvalidEvent(
                "frontier", f"must be {self.size.bit_count()} roots for {self.size}"
            )
        for node in self.frontier:
            _size("frontier", node, HASH_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The heads of all partitions of the audit log at one moment.

    Names every partition, in order, also those without a receipt. `index` is its own
    place among the leaves of the log of cuts, `previous` the leaf before it.
    """

    log_id: LogId
    index: CutIndex
    previous: Sha256
    at_ns: int
    heads: tuple[PartitionHead, ...]

    def __post_init__(self) -> None:
        _at_least("index", self.index, 0)
        _at_least("at_ns", self.at_ns, 0)
        _size("previous", self.previous, HASH_BYTES)
        if [head.partition for head in self.heads] != list(range(len(self.heads))):
            raise InvalidEvent("heads", "must name every partition once, in order")


class KeyRole(StrEnum):
    """What a key may sign."""

    ROOT = "root"
    RECEIPT = "receipt"
    LOG = "log"


class KeyChange(StrEnum):
    """What happens to a key."""

    ADD = "add"
    RETIRE = "retire"
    REVOKE = "revoke"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEvent:
    """A key may sign from here on, no longer, or never did from a cut on.

    `public_key` is DER (SPKI). `last_good_cut` belongs to `REVOKE`: what the key
    signed beyond that cut counts for nothing; -1: all that it ever signed.
    """

    log_id: LogId
    change: KeyChange
    role: KeyRole
    key_id: KeyId
    public_key: bytes
    last_good_cut: int
    at_ns: int
    principal: Principal
    reason: str

    def __post_init__(self) -> None:
        check_key_id(self.key_id)
        _at_least("last_good_cut", self.last_good_cut, -1)
        _at_least("at_ns", self.at_ns, 0)
        if not self.public_key:
            raise InvalidEvent("public_key", "must not be empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedKeyEvent:
    """A key event's exact bytes, signed by the root key and by the key it is about.

    A revoked key need not sign its own revocation.
    """

    event: bytes
    signatures: tuple[Signature, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutsRecord:
    """One record of the topic of cuts: a leaf, and for a cut its checkpoint.

    `leaf` is the exact bytes of a `Cut` or of a `SignedKeyEvent`; `checkpoint` is a
    C2SP signed note over the tree that ends with this leaf, empty for a key event.
    """

    leaf: bytes
    checkpoint: str


@lru_cache(maxsize=256)  # each receipt names one, twice
def check_key_id(text: str) -> KeyId:
    """Return `text` as a key id. Raises: `InvalidEvent` naming the field `key_id`."""
    if len(text) != KEY_ID_CHARS or not _HEX.issuperset(text):
        raise InvalidEvent(
            "key_id", f"must be {KEY_ID_CHARS} lower-case hex characters"
        )
    return KeyId(text)


def _size(field: str, found: Sequence[int], expected: int) -> None:
    if len(found) != expected:
        raise InvalidEvent(field, f"must be {expected} bytes, found {len(found)}")


def _at_least(field: str, found: int, lowest: int) -> None:
    if found < lowest:
        raise InvalidEvent(field, f"must be at least {lowest}, found {found}")
