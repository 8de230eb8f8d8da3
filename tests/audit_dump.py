"""Builds audit logs as signer and cutter write them, with fixed keys and times."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from cachemind.adapters.memory_keys import MemoryKey
from cachemind.codec import Codec
from cachemind.codec.cuts import (
    encode_cut,
    encode_cuts_record,
    encode_key_event,
    encode_signed_key_event,
)
from cachemind.codec.receipts import encode_receipt, encode_signed_receipt
from cachemind.core.audit_means import Pinned, RootKey, WitnessKey
from cachemind.core.checkpoint_note import Checkpoint
from cachemind.core.key_event_record import policy_of
from cachemind.core.merkle import Frontier, leaf_hash
from cachemind.core.partitioner import partition_of
from cachemind.core.receipt_chain import (
    key_event_signing_input,
    receipt_for,
    receipt_signing_input,
)
from cachemind.core.signed_note import (
    NoteKey,
    NoteKeyKind,
    SignedNote,
    cosignature,
    cosigned_message,
    ecdsa_signature,
)
from cachemind.events import Body, Envelope, PolicyChanged
from cachemind.receipts import (
    NO_LEAF,
    SYSTEM_NAMESPACE,
    Cut,
    CutIndex,
    CutsRecord,
    KeyChange,
    KeyEvent,
    KeyRole,
    LogId,
    PartitionHead,
    Receipt,
    Seq,
    SignedKeyEvent,
    SignedReceipt,
)
from cachemind.types import Lsn, Namespace, Offset, Partition, Principal, Sha256
from tests.wal_events import BEGAN_NS, envelope

LOG_ID: Final = LogId("example.com/cachemind")
TOPIC: Final = "cachemind.wal"
ROOT: Final = MemoryKey("audit dump: root")
SECOND_NS: Final = 1_000_000_000
WITNESS_NAME: Final = "witness.example.com/w1"
_WITNESS: Final = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
WITNESS: Final = WitnessKey(
    name=WITNESS_NAME,
    public_key=_WITNESS.public_key().public_bytes(
        Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    ),
)
PINNED: Final = Pinned(
    log_id=LOG_ID,
    roots=(RootKey(key_id=ROOT.key_id, public_key=ROOT.public_key),),
    witnesses=(WITNESS,),
)


@dataclass(frozen=True)
class Dump:
    """An audit log: the values of its records, and (offset, value) of the WAL."""

    receipts: tuple[tuple[bytes, ...], ...]
    cuts: tuple[bytes, ...]
    wal: tuple[tuple[tuple[int, bytes], ...], ...]

    def with_receipts(self, partition: int, values: Sequence[bytes]) -> Dump:
        """Return the dump with other receipts in one partition."""
        changed = list(self.receipts)
        changed[partition] = tuple(values)
        return replace(self, receipts=tuple(changed))

    def with_cuts(self, values: Sequence[bytes]) -> Dump:
        """Return the dump with other records of the topic of cuts."""
        return replace(self, cuts=tuple(values))


@dataclass
class DumpMaker:
    """Grows a log record by record; `now_ns` goes on by a second each time."""

    partitions: int
    receipt_key: MemoryKey
    log_key: MemoryKey
    now_ns: int = BEGAN_NS
    first_offset: int = 1
    wal: list[list[tuple[int, bytes]]] = field(default_factory=list)
    receipts: list[list[bytes]] = field(default_factory=list)
    cuts: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.wal = [[] for _ in range(self.partitions)]
        self.receipts = [[] for _ in range(self.partitions)]
        self._trees = [Frontier() for _ in range(self.partitions)]
        self._leaves = [NO_LEAF for _ in range(self.partitions)]
        self._log = Frontier()
        self._last = NO_LEAF
        self._codec = Codec()

    def append(self, body: Body, namespace: Namespace, at: int | None = None) -> None:
        """Put an event on the WAL and sign it; offsets have gaps, as Kafka's have."""
        event = replace(
            envelope(len(self.cuts) * 100 + self._count(), body),
            namespace=namespace,
            occurred_at_ns=self._tick(),
        )
        partition = partition_of(namespace.encode(), self.partitions)
        self.sign(partition if at is None else at, self._codec.encode(event), event)

    def sign(self, partition: int, value: bytes, event: Envelope | None) -> None:
        """Put a record on the WAL and its receipt on the audit topic."""
        offset = 2 * len(self.wal[partition]) + self.first_offset
        self.wal[partition].append((offset, value))
        receipt = receipt_for(
            value,
            event,
            log_id=LOG_ID,
            seq=Seq(len(self.receipts[partition])),
            previous=Sha256(self._leaves[partition]),
            source_topic=TOPIC,
            source=Lsn(Partition(partition), Offset(offset)),
            signed_at_ns=self._tick(),
            key_id=self.receipt_key.key_id,
        )
        encoded = encode_receipt(receipt)
        self.add_receipt(partition, encoded)

    def add_receipt(self, partition: int, encoded: bytes) -> None:
        """Sign a receipt and make it the next leaf of its partition."""
        self.receipts[partition].append(signed(encoded, self.receipt_key))
        self._leaves[partition] = leaf_hash(encoded)
        self._trees[partition].append(self._leaves[partition])

    def add_next(self, partition: int, receipt: Receipt) -> None:
        """Sign a receipt, whatever it says, at the next seq of its partition."""
        seq, previous = Seq(self._trees[partition].size), self._leaves[partition]
        chained = replace(receipt, seq=seq, previous=Sha256(previous))
        self.add_receipt(partition, encode_receipt(chained))

    def add_leaf(self, leaf: bytes) -> None:
        """Append a key event, whatever it is."""
        self._append_leaf(leaf, "")

    def key_event(
        self, change: KeyChange, role: KeyRole, key: MemoryKey, last_good: int = -1
    ) -> None:
        """Put a key event on the WAL, sign its record, and make it a leaf."""
        event = encode_key_event(
            KeyEvent(
                log_id=LOG_ID,
                change=change,
                role=role,
                key_id=key.key_id,
                public_key=key.public_key,
                last_good_cut=last_good,
                at_ns=self._tick(),
                principal=Principal("operator"),
                reason=f"{change} of the {role} key",
            )
        )
        leaf = signed_key_event(event, ROOT, key)
        self.append(PolicyChanged(policy=policy_of(leaf)), SYSTEM_NAMESPACE)
        self._append_leaf(leaf, "")

    def cut(self) -> None:
        """Make a cut over all receipts so far."""
        heads = tuple(
            PartitionHead(
                partition=Partition(number),
                size=tree.size,
                root=tree.root(),
                frontier=tree.nodes,
            )
            for number, tree in enumerate(self._trees)
        )
        cut = Cut(
            log_id=LOG_ID,
            index=CutIndex(self._log.size),
            previous=Sha256(self._last),
            at_ns=self._tick(),
            heads=heads,
        )
        self.add_cut(cut)

    def add_cut(self, cut: Cut) -> None:
        """Sign a cut, whatever it says, and make it the next leaf."""
        leaf = encode_cut(cut)
        tree = self._log.copy()
        tree.append(leaf_hash(leaf))
        self._append_leaf(leaf, str(checkpoint(tree, self.log_key)))

    def next_index(self) -> int:
        """Return the index that the next leaf has."""
        return self._log.size

    def dump(self) -> Dump:
        """Return what was made."""
        return Dump(
            receipts=tuple(map(tuple, self.receipts)),
            cuts=tuple(self.cuts),
            wal=tuple(map(tuple, self.wal)),
        )

    def _append_leaf(self, leaf: bytes, note: str) -> None:
        self.cuts.append(encode_cuts_record(CutsRecord(leaf=leaf, checkpoint=note)))
        self._last = leaf_hash(leaf)
        self._log.append(self._last)

    def _count(self) -> int:
        return sum(map(len, self.wal))

    def _tick(self) -> int:
        self.now_ns += SECOND_NS
        return self.now_ns


def signed(receipt: bytes, key: MemoryKey) -> bytes:
    """Return the record of a receipt that `key` signs."""
    signature = key.sign(receipt_signing_input(receipt))
    return encode_signed_receipt(SignedReceipt(receipt=receipt, signature=signature))


def signed_key_event(event: bytes, *keys: MemoryKey) -> bytes:
    """Return the leaf of a key event that `keys` sign."""
    message = key_event_signing_input(event)
    signatures = tuple(key.sign(message) for key in keys)
    return encode_signed_key_event(SignedKeyEvent(event=event, signatures=signatures))


def checkpoint(tree: Frontier, key: MemoryKey) -> SignedNote:
    """Return the checkpoint of a tree that `key` signs."""
    text = str(Checkpoint(origin=LOG_ID, size=tree.size, root=tree.root()))
    named = NoteKey(name=LOG_ID, kind=NoteKeyKind.ECDSA, public_key=key.public_key)
    line = ecdsa_signature(named, key.sign(text.encode()).value)
    return SignedNote(text=text, signatures=(line,))


def cosigned(note: SignedNote, timestamp_s: int) -> SignedNote:
    """Return a checkpoint with the witness's line as well."""
    kind = NoteKeyKind.COSIGNATURE
    key = NoteKey(name=WITNESS.name, kind=kind, public_key=WITNESS.public_key)
    signature = _WITNESS.sign(cosigned_message(note.text, timestamp_s))
    return note.signed_by(cosignature(key, timestamp_s, signature))


def lines_of(dump: Dump) -> Iterator[str]:
    """Yield the dump as text: a JSON object a record."""
    for partition, values in enumerate(dump.receipts):
        for value in values:
            yield _line("cachemind.audit", partition, value)
    for value in dump.cuts:
        yield _line("cachemind.audit.cuts", 0, value)
    for partition, records in enumerate(dump.wal):
        for offset, value in records:
            yield _line(TOPIC, partition, value, offset=offset)


def _line(topic: str, partition: int, value: bytes, **more: Any) -> str:
    encoded = base64.b64encode(value).decode()
    record = {"topic": topic, "partition": partition, **more, "value": encoded}
    return json.dumps(record) + "\n"
