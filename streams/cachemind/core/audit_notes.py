"""Verifies the checkpoints of cuts: of which log and size, and who signed them."""

from __future__ import annotations

from dataclasses import dataclass

from cachemind.core.audit_findings import Finding, Place, Reason, Step, tampered
from cachemind.core.audit_means import Means
from cachemind.core.checkpoint_note import Checkpoint
from cachemind.core.key_validity import KeyHistory, Verdict
from cachemind.core.signed_note import NoteKey, NoteKeyKind, SignedNote, verdict_on
from cachemind.errors import MalformedNote
from cachemind.receipts import Cut
from cachemind.types import Sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class CutNote:
    """A signed note whose text is a checkpoint."""

    note: SignedNote
    checkpoint: Checkpoint

    @property
    def size(self) -> int:
        """Return how many leaves the tree has."""
        return self.checkpoint.size

    @property
    def root(self) -> Sha256:
        """Return the tree's root."""
        return self.checkpoint.root

    @classmethod
    def parse(cls, text: str) -> CutNote:
        """Return the checkpoint in a note, not verified. Raises: `MalformedNote`."""
        note = SignedNote.parse(text)
        return cls(note=note, checkpoint=Checkpoint.parse(note.text))


def checkpoint_of(text: str, cut: Cut, means: Means, place: Place) -> CutNote | Finding:
    """Return the checkpoint beside `cut`, or why it is not one of this cut."""
    if cut.log_id != means.pinned.log_id:
        problem = f"it is of the log {cut.log_id!r}"
        return tampered(Step.CUTS, Reason.OTHER_LOG, problem, place)
    try:
        found = CutNote.parse(text)
    except MalformedNote as error:
        reason = Reason.CHECKPOINT_MALFORMED
        return tampered(Step.CHECKPOINTS, reason, str(error), place)
    told = found.checkpoint
    if (told.origin, told.size) != (cut.log_id, cut.index + 1):
        problem = f"its checkpoint is of {told.size} leaves of the log {told.origin!r}"
        reason = Reason.CHECKPOINT_OF_OTHER_CUT
        return tampered(Step.CHECKPOINTS, reason, problem, place)
    return found


def checkpoint_problem(
    found: CutNote, index: int, keys: KeyHistory, means: Means
) -> tuple[Reason, str] | None:
    """Return why the cut at `index` is not signed; None where it is.

    One log key that may sign there is enough; no known key may have a wrong line.
    """
    name = means.pinned.log_id
    known = {_note_key(name, one.public_key): one.key_id for one in keys.tenures()}
    verdict = verdict_on(found.note, known, means.checks)
    for key in verdict.wrong:
        text = f"the checkpoint's signature by key {known[key]} does not hold"
        return Reason.CHECKPOINT_SIGNATURE, text
    if not verdict.holding:
        text = f"no key known by then signed its checkpoint as {name!r}"
        return Reason.CHECKPOINT_UNSIGNED, text
    signers = [known[one.key] for one in verdict.holding]
    verdicts = [keys.cut(key_id, index) for key_id in signers]
    if Verdict.VALID in verdicts:
        return None
    text = f"key {signers[0]} may not sign its checkpoint: {verdicts[0]}"
    return Reason(verdicts[0].value), text


def witnessed_by(found: CutNote, means: Means) -> tuple[list[str], list[str]]:
    """Return which pinned witnesses signed the checkpoint, and whose line is wrong."""
    keys = [
        NoteKey(name=one.name, kind=NoteKeyKind.COSIGNATURE, public_key=one.public_key)
        for one in means.pinned.witnesses
    ]
    verdict = verdict_on(found.note, keys, means.checks)
    wrong = [key.name for key in verdict.wrong]
    names = [one.key.name for one in verdict.holding if one.key.name not in wrong]
    return names, wrong


def _note_key(name: str, public_key: bytes) -> NoteKey:
    return NoteKey(name=name, kind=NoteKeyKind.ECDSA, public_key=public_key)
