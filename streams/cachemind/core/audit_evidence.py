"""Verifies one receipt from what came with it, and the root key that is pinned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cachemind.core.audit_findings import Finding, Place, Reason, Step, tampered
from cachemind.core.audit_keys import key_event_problem
from cachemind.core.audit_means import Means
from cachemind.core.checkpoint_note import Checkpoint
from cachemind.core.merkle import leaf_hash, verify_inclusion
from cachemind.core.receipt_chain import receipt_signing_input
from cachemind.core.signed_note import NoteKey, NoteKeyKind, SignedNote, verdict_on
from cachemind.errors import InvalidEvent, MalformedNote
from cachemind.receipts import (
    Cut,
    CutIndex,
    CutsRecord,
    KeyChange,
    KeyEvent,
    KeyId,
    KeyRole,
    Receipt,
    SignedKeyEvent,
    SignedReceipt,
)
from cachemind.types import Sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLeaf:
    """A key event and its place in the log of cuts."""

    index: CutIndex
    signed: SignedKeyEvent
    event: KeyEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A receipt, the first cut that covers it, and every key event.

    `receipt` and `cut` are decoded from the bytes in `signed` and `record`. `path`
    leads from the receipt to its partition's root, `cut_path` from the cut to the
    root of its checkpoint.
    """

    signed: SignedReceipt
    receipt: Receipt
    path: tuple[Sha256, ...]
    record: CutsRecord
    cut: Cut
    cut_path: tuple[Sha256, ...]
    key_leaves: tuple[KeyLeaf, ...]


def evidence_problems(evidence: Evidence, means: Means) -> Iterator[Finding]:
    """Yield what is wrong with the evidence; nothing where it proves the receipt.

    1. Receipt and cut are of the pinned log.
    2. Each key event is signed by a pinned root key and by the key that it adds.
    3. The receipt is signed by a receipt key that might sign it under this cut.
    4. The receipt is a leaf under the root that the cut names for its partition.
    5. The checkpoint is signed by a log key that might sign this cut.
    6. The cut is the last leaf under the root of its checkpoint.

    What is not sent cannot be seen: a later revocation, or that the cut is not the
    first one over the receipt. That takes a verification of the whole log.
    """
    receipt, log_id = evidence.receipt, means.pinned.log_id
    place = Place(partition=receipt.partition, seq=receipt.seq, source=receipt.source)
    if not receipt.log_id == evidence.cut.log_id == log_id:
        text = f"it is of the log {receipt.log_id!r}, expected {log_id!r}"
        yield tampered(Step.CHAIN, Reason.OTHER_LOG, text, place)
    yield from _events(evidence, means)
    yield from _signature(evidence, means, place)
    yield from _inclusion(evidence, place)
    yield from _checkpoint(evidence, means, place)


def _events(evidence: Evidence, means: Means) -> Iterator[Finding]:
    for leaf in evidence.key_leaves:
        place = Place(index=leaf.index)
        problem = key_event_problem(leaf.signed, leaf.event, "", means, place)
        if problem is not None:
            yield problem


def _signature(evidence: Evidence, means: Means, place: Place) -> Iterator[Finding]:
    signature, key_id = evidence.signed.signature, evidence.receipt.key_id
    if signature.key_id != key_id:
        text = f"signed by {signature.key_id}, and the receipt says {key_id}"
        yield tampered(Step.SIGNATURES, Reason.KEY_NAMES_DIFFER, text, place)
    problem, public_key = _key(evidence, key_id, KeyRole.RECEIPT)
    if problem is not None:
        text = f"the key {key_id} may not sign this receipt"
        yield tampered(Step.SIGNATURES, problem, text, place)
    if public_key is not None:
        message = receipt_signing_input(evidence.signed.receipt)
        if not _holds(means, public_key, message, signature.value):
            text = f"the signature by {key_id} does not hold"
            yield tampered(Step.SIGNATURES, Reason.SIGNATURE, text, place)


def _inclusion(evidence: Evidence, place: Place) -> Iterator[Finding]:
    receipt, heads = evidence.receipt, evidence.cut.heads
    leaf = leaf_hash(evidence.signed.receipt)
    if receipt.partition < len(heads):
        head = heads[receipt.partition]
        if verify_inclusion(leaf, receipt.seq, head.size, evidence.path, head.root):
            return
    text = f"the receipt is not under cut {evidence.cut.index}"
    yield tampered(Step.ROOTS, Reason.ROOT, text, place)


def _checkpoint(evidence: Evidence, means: Means, place: Place) -> Iterator[Finding]:
    try:
        note = SignedNote.parse(evidence.record.checkpoint)
        checkpoint = Checkpoint.parse(note.text)
    except MalformedNote as error:
        reason = Reason.CHECKPOINT_MALFORMED
        yield tampered(Step.CHECKPOINTS, reason, str(error), place)
        return
    if not _is_signed(note, evidence, means):
        text = "no log key that might sign this cut has signed its checkpoint"
        yield tampered(Step.CHECKPOINTS, Reason.CHECKPOINT_SIGNATURE, text, place)
    index, leaf = evidence.cut.index, leaf_hash(evidence.record.leaf)
    path, size = evidence.cut_path, checkpoint.size
    if checkpoint.origin != means.pinned.log_id or size != index + 1:
        text = f"the checkpoint is of {checkpoint.origin!r} with {size} leaves"
        reason = Reason.CHECKPOINT_OF_OTHER_CUT
        yield tampered(Step.CHECKPOINTS, reason, text, place)
    elif not verify_inclusion(leaf, index, size, path, checkpoint.root):
        text = f"cut {index} is not under the root of its checkpoint"
        yield tampered(Step.CHECKPOINTS, Reason.CHECKPOINT_ROOT, text, place)


def _is_signed(note: SignedNote, evidence: Evidence, means: Means) -> bool:
    keys = []
    for key_id in {leaf.event.key_id for leaf in evidence.key_leaves}:
        problem, public_key = _key(evidence, key_id, KeyRole.LOG)
        if problem is None and public_key is not None:
            keys.append(
                NoteKey(
                    name=means.pinned.log_id,
                    kind=NoteKeyKind.ECDSA,
                    public_key=public_key,
                )
            )
    try:
        return verdict_on(note, keys, means.checks).counts
    except InvalidEvent:
        return False


def _key(
    evidence: Evidence, key_id: KeyId, role: KeyRole
) -> tuple[Reason | None, bytes | None]:
    """Return why a key might not sign under this cut, and its public key if known."""
    cut, events = evidence.cut.index, evidence.key_leaves
    about = sorted(
        (leaf for leaf in events if leaf.event.key_id == key_id),
        key=lambda leaf: leaf.index,
    )
    added = [leaf for leaf in about if leaf.event.change is KeyChange.ADD]
    if not added:
        return Reason.UNKNOWN_KEY, None
    first = added[0]
    return _tenure(about, first, role, cut, events), first.event.public_key


def _tenure(
    about: Sequence[KeyLeaf],
    first: KeyLeaf,
    role: KeyRole,
    cut: int,
    events: Sequence[KeyLeaf],
) -> Reason | None:
    if first.event.role is not role:
        return Reason.KEY_OF_OTHER_ROLE
    if first.index > cut:
        return Reason.KEY_NOT_ADDED_YET
    for leaf in about:
        change = leaf.event.change
        if change is KeyChange.REVOKE and leaf.event.last_good_cut < cut:
            return Reason.KEY_REVOKED
        if change is KeyChange.RETIRE and leaf.index < cut:
            # Receipts under the first cut after it are from before it.
            between = set(range(leaf.index + 1, cut))
            if role is KeyRole.LOG or between - {one.index for one in events}:
                return Reason.KEY_RETIRED
    return None


def _holds(means: Means, public_key: bytes, message: bytes, value: bytes) -> bool:
    try:
        return means.checks.ecdsa(public_key, message, value)
    except InvalidEvent:
        return False
