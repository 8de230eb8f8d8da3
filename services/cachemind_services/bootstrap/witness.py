"""A witness's work, over the topic of cuts or over sealed files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.witness_files import (
    WitnessKeyFile,
    WitnessMemory,
    create_witness_key,
)
from cachemind.core.audit_means import Pinned
from cachemind.core.signed_note import (
    NoteKey,
    NoteKeyKind,
    SignedNote,
    cosignature,
    cosigned_message,
    verdict_on,
)
from cachemind.core.witness import seen_next
from cachemind.errors import MalformedNote, WitnessRefused
from cachemind_services.bootstrap.pinned import means_of

NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Cosigner:
    """Who signs: under which name, with the key in which file, remembering where."""

    name: str
    key: Path
    memory: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Cosigned:
    """A pinned witness's line that holds. Units: seconds since the Unix epoch."""

    witness: str
    time_s: int


def new_witness(name: str, path: Path) -> NoteKey:
    """Make a witness's key; return it as others refer to it.

    Raises: `KeyRefused`, `KeyUnavailable`, `MalformedNote` for a name that is none.
    """
    NoteKey(name=name, kind=NoteKeyKind.ECDSA, public_key=b"")  # the name alone
    return _named(name, create_witness_key(path))


def cosign(values: Iterator[bytes], pinned: Pinned, who: Cosigner) -> SignedNote:
    """Return the newest checkpoint with a witness's line, once it is remembered.

    1. Nobody else uses the memory meanwhile.
    2. The log of cuts holds, and begins with what was seen before.
    3. The checkpoint is remembered, on disk.
    4. Only then it is signed: a crash in between costs a line, never two histories.

    Raises: `WitnessRefused`, `StoreLocked`, `KeyRefused`, `KeyUnavailable`.
    """
    key, memory = WitnessKeyFile(who.key), WitnessMemory(who.memory)
    named = _named(who.name, key)
    with memory.held():
        found = seen_next(values, means_of(pinned), memory.load())
        memory.save(found.checkpoint)
    time_s = SystemClock().now_ns() // NS_PER_S
    signature = key.sign(cosigned_message(found.note.text, time_s))
    return found.note.signed_by(cosignature(named, time_s, signature))


def check(note: SignedNote, pinned: Pinned) -> list[Cosigned]:
    """Return the pinned witnesses whose lines hold.

    Raises: `WitnessRefused` where a line of one is wrong, or none has signed.
    """
    means = means_of(pinned)
    keys = [
        NoteKey(name=one.name, kind=NoteKeyKind.COSIGNATURE, public_key=one.public_key)
        for one in pinned.witnesses
    ]
    verdict = verdict_on(note, keys, means.checks)
    if verdict.wrong:
        names = ", ".join(key.name for key in verdict.wrong)
        raise WitnessRefused(f"the signature of {names} does not hold")
    if not verdict.holding:
        raise WitnessRefused("no witness that is pinned has signed it")
    return [
        Cosigned(witness=one.key.name, time_s=one.timestamp_s or 0)
        for one in verdict.holding
    ]


def read_note(path: Path) -> SignedNote:
    """Return the signed note in a file. Raises: `WitnessRefused`."""
    try:
        return SignedNote.parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, MalformedNote) as error:
        raise WitnessRefused(f"{path}: {error}") from error


def _named(name: str, key: WitnessKeyFile) -> NoteKey:
    return NoteKey(name=name, kind=NoteKeyKind.COSIGNATURE, public_key=key.public_key)
