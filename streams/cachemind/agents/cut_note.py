"""Makes the record of a cut: the leaf, and the checkpoint that a log key signs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cachemind.codec.cuts import decode_cut, encode_cut, encode_cuts_record
from cachemind.core.checkpoint_note import Checkpoint
from cachemind.core.cutting import LogOfCuts
from cachemind.core.signature_check import SignatureCheck
from cachemind.core.signed_note import (
    NoteKey,
    NoteKeyKind,
    SignedNote,
    ecdsa_signature,
    verdict_on,
)
from cachemind.errors import AuditBroken, KeyRefused
from cachemind.ports import SigningKey
from cachemind.receipts import Cut, CutsRecord, LogId
from cachemind.types import Sha256

MALFORMED: Final = "checkpoint-does-not-hold"


def note_key(log_id: LogId, public_key: bytes) -> NoteKey:
    """Return the name and kind by which a log key signs its checkpoints."""
    return NoteKey(name=log_id, kind=NoteKeyKind.ECDSA, public_key=public_key)


def signed_cut(
    cut: Cut, leaves: LogOfCuts, key: SigningKey, check: SignatureCheck
) -> bytes:
    """Return the record of `cut`, the next leaf after `leaves`.

    1. The leaf's bytes say what the cut says.
    2. The root over all leaves is found twice.
    3. The signature over it holds.

    Raises: `AuditBroken`, `KeyUnavailable`, `KeyRefused`.
    """
    leaf = encode_cut(cut)
    if decode_cut(leaf) != cut:
        raise AuditBroken(f"cut {cut.index}", MALFORMED, "its bytes say another cut")
    head = leaves.head_with(leaf)
    text = str(Checkpoint(origin=cut.log_id, size=head.size, root=head.root))
    named = note_key(cut.log_id, key.public_key)
    signature = ecdsa_signature(named, key.sign(text.encode()).value)
    note = SignedNote(text=text, signatures=(signature,))
    if not verdict_on(note, [named], check).counts:
        raise KeyRefused(key.key_id, "its own signature does not hold")
    return encode_cuts_record(CutsRecord(leaf=leaf, checkpoint=str(note)))


def check_checkpoint(
    checkpoint: str,
    cut: Cut,
    root: Sha256,
    public_keys: Sequence[bytes],
    check: SignatureCheck,
) -> None:
    """Raise `AuditBroken` unless one of `public_keys` signed the checkpoint of `cut`.

    `root` is the one over all leaves up to it. Raises: `MalformedNote`.
    """
    note = SignedNote.parse(checkpoint)
    expected = Checkpoint(origin=cut.log_id, size=cut.index + 1, root=root)
    where = f"cut {cut.index}"
    if Checkpoint.parse(note.text) != expected:
        raise AuditBroken(where, MALFORMED, "it names another tree than the leaves are")
    keys = [note_key(cut.log_id, public_key) for public_key in public_keys]
    if not verdict_on(note, keys, check).counts:
        raise AuditBroken(where, MALFORMED, "it is not signed by a key that may")
