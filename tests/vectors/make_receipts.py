"""Writes receipts.json: a whole small audit log, with every step of its bytes.

Run it from the repository's root: `python -m tests.vectors.make_receipts`. Keys are
derived from fixed numbers and signatures are deterministic (RFC 6979, RFC 8032), so
it writes the same file each time. Bytes are given as hex, unless they are text.

The private keys are no secret. Never use them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, is_dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from cachemind.codec import Codec
from cachemind.codec.cuts import (
    encode_cut,
    encode_cuts_record,
    encode_key_event,
    encode_signed_key_event,
)
from cachemind.codec.receipts import encode_receipt, encode_signed_receipt
from cachemind.core.checkpoint_note import Checkpoint
from cachemind.core.ecdsa_signature import raw_of_der
from cachemind.core.key_event_record import policy_of
from cachemind.core.merkle import (
    Frontier,
    MerkleTree,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
)
from cachemind.core.operation import hash_of
from cachemind.core.partitioner import partition_of
from cachemind.core.public_keys import key_id_of, pem_of
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
    Seq,
    Signature,
    SignedKeyEvent,
    SignedReceipt,
)
from cachemind.types import (
    EventId,
    Lsn,
    Namespace,
    Offset,
    Partition,
    Principal,
    Sha256,
    Timeline,
    TraceId,
    WriterId,
)
from cachemind_schemas.loader import AUDIT, current_audit
from tests.vectors.make_events import BODIES

TARGET: Final = Path(__file__).with_name("receipts.json")
LOG_ID: Final = LogId("audit.example/cachemind")
WITNESS: Final = "witness.example/w1"
TOPIC: Final = "cachemind.wal"
PARTITIONS: Final = 2
AT_NS: Final = 1_750_000_000_123_456_789
SECOND_NS: Final = 1_000_000_000
_DETERMINISTIC: Final = ec.ECDSA(SHA256(), deterministic_signing=True)
_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


@dataclass(frozen=True)
class Key:
    """A key pair that follows from its name."""

    name: str

    @property
    def number(self) -> int:
        """Return the private key."""
        return int.from_bytes(sha256(self.name.encode()).digest(), "big") % _ORDER

    @property
    def public_key(self) -> bytes:
        """Return the public key as DER (SPKI)."""
        public = ec.derive_private_key(self.number, ec.SECP256R1()).public_key()
        return public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    def sign(self, message: bytes) -> Signature:
        """Return the deterministic signature over SHA-256 of `message`."""
        private = ec.derive_private_key(self.number, ec.SECP256R1())
        raw = raw_of_der(private.sign(message, _DETERMINISTIC))
        return Signature(key_id=key_id_of(self.public_key), value=raw)


ROOT_KEY: Final = Key("cachemind test root key")
LOG_KEY: Final = Key("cachemind test log key")
RECEIPT_KEY: Final = Key("cachemind test receipt key")
NEXT_KEY: Final = Key("cachemind test receipt key, the next")
WITNESS_SEED: Final = sha256(b"cachemind test witness").digest()


def witness_key() -> NoteKey:
    """Return the witness's public key."""
    public = ed25519.Ed25519PrivateKey.from_private_bytes(WITNESS_SEED).public_key()
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return NoteKey(name=WITNESS, kind=NoteKeyKind.COSIGNATURE, public_key=der)


def log_note_key() -> NoteKey:
    """Return the log key as notes name it."""
    return NoteKey(name=LOG_ID, kind=NoteKeyKind.ECDSA, public_key=LOG_KEY.public_key)


class AuditLog:
    """Grows a log as signer and cutter would, and keeps every step."""

    def __init__(self) -> None:
        self.codec = Codec()
        self.trees = [Frontier() for _ in range(PARTITIONS)]
        self.previous = [NO_LEAF for _ in range(PARTITIONS)]
        self.offsets = [0 for _ in range(PARTITIONS)]
        self.leaves = MerkleTree()
        self.last_leaf = NO_LEAF
        self.steps: list[dict[str, Any]] = []
        self.events = 0

    def happens(self, body: Body, namespace: Namespace, key: Key) -> None:
        """Put an event on the log and sign its receipt."""
        event = _envelope(body, namespace, self.events)
        self.events += 1
        partition = partition_of(namespace.encode(), PARTITIONS)
        self.record(self.codec.encode(event), event, partition, key)

    def record(
        self, value: bytes | None, event: Envelope | None, partition: int, key: Key
    ) -> None:
        """Put a record on the log and sign its receipt."""
        offset = self.offsets[partition]
        # Every other offset: as on a topic with transactions, there are gaps.
        self.offsets[partition] += 2
        receipt = receipt_for(
            value,
            event,
            log_id=LOG_ID,
            seq=Seq(self.trees[partition].size),
            previous=self.previous[partition],
            source_topic=TOPIC,
            source=Lsn(Partition(partition), Offset(offset)),
            signed_at_ns=AT_NS + self.events * SECOND_NS,
            key_id=key_id_of(key.public_key),
        )
        exact = encode_receipt(receipt)
        signing_input = receipt_signing_input(exact)
        signed = SignedReceipt(receipt=exact, signature=key.sign(signing_input))
        leaf = leaf_hash(exact)
        self.previous[partition] = leaf
        self.trees[partition].append(leaf)
        self.steps.append(
            {
                "step": "receipt",
                "wal_value": None if value is None else value.hex(),
                "receipt": plain(receipt),
                "receipt_bytes": exact.hex(),
                "leaf": leaf.hex(),
                "signing_input": signing_input.hex(),
                "record_value": encode_signed_receipt(signed).hex(),
                "root_after": self.trees[partition].root().hex(),
                "frontier_after": plain(self.trees[partition].nodes),
            }
        )

    def key_event(
        self, change: KeyChange, role: KeyRole, key: Key, signer: Key, reason: str
    ) -> None:
        """Sign a key event, put it on the log, and append it as a leaf."""
        event = KeyEvent(
            log_id=LOG_ID,
            change=change,
            role=role,
            key_id=key_id_of(key.public_key),
            public_key=key.public_key,
            last_good_cut=-1,
            at_ns=AT_NS + self.events * SECOND_NS,
            principal=Principal("auditor@example"),
            reason=reason,
        )
        exact = encode_key_event(event)
        signing_input = key_event_signing_input(exact)
        signatures = (ROOT_KEY.sign(signing_input), key.sign(signing_input))
        leaf = encode_signed_key_event(
            SignedKeyEvent(event=exact, signatures=signatures)
        )
        policy = policy_of(leaf)
        self.steps.append(
            {
                "step": "key_event",
                "event": plain(event),
                "event_bytes": exact.hex(),
                "signing_input": signing_input.hex(),
                "policy": policy,
            }
        )
        self.happens(PolicyChanged(policy=policy), SYSTEM_NAMESPACE, signer)
        self._append(leaf, "", {})

    def cut(self) -> None:
        """Append a cut, with the log key's checkpoint."""
        value = Cut(
            log_id=LOG_ID,
            index=CutIndex(self.leaves.size),
            previous=self.last_leaf,
            at_ns=AT_NS + self.events * SECOND_NS,
            heads=tuple(
                PartitionHead(
                    partition=Partition(number),
                    size=tree.size,
                    root=tree.root(),
                    frontier=tree.nodes,
                )
                for number, tree in enumerate(self.trees)
            ),
        )
        leaf = encode_cut(value)
        after = MerkleTree(self.leaves.size, self._frontier())
        after.append(leaf_hash(leaf))
        text = str(Checkpoint(origin=LOG_ID, size=after.size, root=after.root()))
        line = ecdsa_signature(log_note_key(), LOG_KEY.sign(text.encode()).value)
        note = SignedNote(text=text, signatures=(line,))
        self._append(leaf, str(note), {"cut": plain(value)})

    def _frontier(self) -> tuple[Sha256, ...]:
        kept = Frontier()
        kept.extend(self.leaves.node(0, at) for at in range(self.leaves.size))
        return kept.nodes

    def _append(self, leaf: bytes, checkpoint: str, more: dict[str, Any]) -> None:
        hashed = leaf_hash(leaf)
        self.last_leaf = hashed
        self.leaves.append(hashed)
        cuts = CutsRecord(leaf=leaf, checkpoint=checkpoint)
        self.steps.append(
            {
                "step": "leaf",
                "index": self.leaves.size - 1,
                **more,
                "leaf_bytes": leaf.hex(),
                "leaf": hashed.hex(),
                "root_after": self.leaves.root().hex(),
                "checkpoint": checkpoint,
                "record_value": encode_cuts_record(cuts).hex(),
            }
        )


def _envelope(body: Body, namespace: Namespace, number: int) -> Envelope:
    at_ns = AT_NS + number * SECOND_NS
    return Envelope(
        event_id=EventId(number.to_bytes(16, "big")),
        namespace=namespace,
        trace_id=TraceId((0x1000 + number).to_bytes(16, "big")),
        principal=Principal("alice"),
        occurred_at_ns=at_ns,
        writer=WriterId("gateway-1/4711"),
        writer_seq=number,
        timeline=Timeline(0),
        op_hash=hash_of(body, at_ns),
        body=body,
    )


def audit_log() -> AuditLog:
    """Return the log of the vectors."""
    log = AuditLog()
    one, other = Namespace("tenant-a"), Namespace("tenant-b")
    first = RECEIPT_KEY
    log.key_event(KeyChange.ADD, KeyRole.LOG, LOG_KEY, first, "the first log key")
    log.key_event(KeyChange.ADD, KeyRole.RECEIPT, first, first, "the first key")
    log.cut()
    log.happens(BODIES["reads-one-miss"], one, first)
    log.happens(BODIES["stored-with-all"], one, first)
    log.happens(BODIES["reads-one-hit"], one, first)
    log.happens(BODIES["reads-group-of-each-outcome"], other, first)
    log.cut()
    log.record(b"no event at all", None, 0, first)
    log.record(None, None, 1, first)
    log.key_event(KeyChange.ADD, KeyRole.RECEIPT, NEXT_KEY, first, "rotation")
    log.cut()
    log.happens(BODIES["refused"], other, NEXT_KEY)
    log.key_event(KeyChange.RETIRE, KeyRole.RECEIPT, first, NEXT_KEY, "rotation")
    log.cut()
    for name in ("feedback-right", "evicted", "invalidated-by-tag", "rolled-back"):
        log.happens(BODIES[name], one, NEXT_KEY)
    log.cut()
    return log


def cosigned(log: AuditLog) -> dict[str, Any]:
    """Return the last checkpoint with a witness's signature on it."""
    note = SignedNote.parse(log.steps[-1]["checkpoint"])
    timestamp_s = AT_NS // SECOND_NS + 3600
    message = cosigned_message(note.text, timestamp_s)
    private = ed25519.Ed25519PrivateKey.from_private_bytes(WITNESS_SEED)
    line = cosignature(witness_key(), timestamp_s, private.sign(message))
    return {
        "timestamp_s": timestamp_s,
        "message": message.decode(),
        "note": str(note.signed_by(line)),
    }


def proofs(log: AuditLog) -> dict[str, Any]:
    """Return proofs over the log of cuts."""
    size = log.leaves.size
    return {
        "inclusion": [
            {
                "index": index,
                "size": size,
                "proof": plain(inclusion_proof(log.leaves.node, index, size)),
            }
            for index in range(size)
        ],
        "consistency": [
            {
                "old": old,
                "size": size,
                "old_root": log.leaves.root(old).hex(),
                "proof": plain(consistency_proof(log.leaves.node, old, size)),
            }
            for old in range(1, size + 1)
        ],
    }


def document() -> str:
    """Return the file's text."""
    log = audit_log()
    keys = {
        "root": ROOT_KEY,
        "log": LOG_KEY,
        "receipt": RECEIPT_KEY,
        "next_receipt": NEXT_KEY,
    }
    whole = {
        "log_id": LOG_ID,
        "partitions": PARTITIONS,
        "headers": {name: f"c301{current_audit(name).crc64.hex()}" for name in AUDIT},
        "keys": {
            role: {
                "private_number": key.number.to_bytes(32, "big").hex(),
                "key_id": key_id_of(key.public_key),
                "public_key": key.public_key.hex(),
                "public_key_pem": pem_of(key.public_key),
            }
            for role, key in keys.items()
        },
        "log_verifier_key": str(log_note_key()),
        "witness": {
            "private_seed": WITNESS_SEED.hex(),
            "verifier_key": str(witness_key()),
        },
        "steps": log.steps,
        "proofs": proofs(log),
        "cosigned": cosigned(log),
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def plain(value: Any) -> Any:
    """Return what JSON can hold of a value, byte strings in hex."""
    if isinstance(value, bytes):
        return value.hex()
    if is_dataclass(value):
        return {part.name: plain(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    return value


if __name__ == "__main__":
    TARGET.write_text(document(), encoding="utf-8")
