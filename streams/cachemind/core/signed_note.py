"""Signed notes: a text and a line for each signature over it, which anybody may add.

    text, any lines\\n
    \\n
    — name base64(key hash || signature)\\n

A key is found by its name and the 4 bytes of its key hash. Signatures of unknown keys
mean nothing, so that keys can change and witnesses can sign beside the log.
Source: C2SP signed-note v1.0.0; for witnesses, C2SP tlog-cosignature v1.0.0.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from hashlib import sha256
from typing import Final

from cachemind.core.ecdsa_signature import der_of_raw, raw_of_der
from cachemind.core.signature_check import SignatureCheck
from cachemind.errors import InvalidEvent, MalformedNote

MAX_NOTE_CHARS: Final = 1_000_000
MAX_SIGNATURES: Final = 100
MAX_TIMESTAMP: Final = 2**63 - 1
KEY_HASH_BYTES: Final = 4
TIMESTAMP_BYTES: Final = 8
ED25519_KEY_BYTES: Final = 32
ED25519_SPKI: Final = bytes.fromhex("302a300506032b6570032100")
"""What precedes an Ed25519 key in DER (SPKI). Source: RFC 8410 section 4."""

_DASH: Final = "— "


class NoteKeyKind(IntEnum):
    """What a key signs by, as the byte that stands for it in a verifier key."""

    ED25519 = 1
    ECDSA = 2
    COSIGNATURE = 4
    """Ed25519 of a witness, over the text and the time at which it signed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteKey:
    """A public key, in DER (SPKI), under the name by which notes refer to it."""

    name: str
    kind: NoteKeyKind
    public_key: bytes

    def __post_init__(self) -> None:
        check_note_name(self.name)
        if self.kind is not NoteKeyKind.ECDSA and (
            not self.public_key.startswith(ED25519_SPKI)
            or len(self.public_key) != len(ED25519_SPKI) + ED25519_KEY_BYTES
        ):
            raise MalformedNote("an Ed25519 key must be one in DER (SPKI)")

    @property
    def material(self) -> bytes:
        """Return the key as a verifier key holds it."""
        if self.kind is NoteKeyKind.ECDSA:
            return self.public_key
        return self.public_key.removeprefix(ED25519_SPKI)

    @property
    def key_hash(self) -> bytes:
        """Return the 4 bytes by which a note tells keys of one name apart."""
        if self.kind is NoteKeyKind.ECDSA:
            return sha256(self.public_key).digest()[:KEY_HASH_BYTES]
        named = self.name.encode() + b"\n" + bytes([self.kind]) + self.material
        return sha256(named).digest()[:KEY_HASH_BYTES]

    def __str__(self) -> str:
        """Return the verifier key: `name+hash+base64(kind || key)`."""
        encoded = base64.b64encode(bytes([self.kind]) + self.material).decode()
        return f"{self.name}+{self.key_hash.hex()}+{encoded}"

    @classmethod
    def parse(cls, text: str) -> NoteKey:
        """Return the key that a verifier key says. Raises: `MalformedNote`."""
        name, _, rest = text.partition("+")
        shown_hash, _, encoded = rest.partition("+")
        kind, material = _split_kind(decoded_base64(encoded, "a verifier key"))
        if kind is not NoteKeyKind.ECDSA:
            material = ED25519_SPKI + material
        key = cls(name=name, kind=kind, public_key=material)
        if shown_hash != key.key_hash.hex():
            raise MalformedNote("a verifier key's hash must be that of its key")
        return key


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteSignature:
    """One signature line: who says to have signed, and the bytes of the signature."""

    name: str
    key_hash: bytes
    value: bytes

    def __post_init__(self) -> None:
        check_note_name(self.name)
        if len(self.key_hash) != KEY_HASH_BYTES or not self.value:
            raise MalformedNote("a signature must be 4 bytes of key hash and more")

    def __str__(self) -> str:
        """Return the line, without its end."""
        encoded = base64.b64encode(self.key_hash + self.value).decode()
        return f"{_DASH}{self.name} {encoded}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedNote:
    """A text, which ends with its last line's end, and the signatures over it."""

    text: str
    signatures: tuple[NoteSignature, ...]

    def __post_init__(self) -> None:
        _check_text(self.text)
        if not 0 < len(self.signatures) <= MAX_SIGNATURES:
            raise MalformedNote(f"a note must have 1 to {MAX_SIGNATURES} signatures")

    def __str__(self) -> str:
        """Return the note as it is passed on."""
        lines = "".join(f"{signature}\n" for signature in self.signatures)
        return f"{self.text}\n{lines}"

    def signed_by(self, *more: NoteSignature) -> SignedNote:
        """Return the note with more signatures."""
        return replace(self, signatures=(*self.signatures, *more))

    @classmethod
    def parse(cls, note: str) -> SignedNote:
        """Return what a note says, without a check. Raises: `MalformedNote`."""
        if len(note) > MAX_NOTE_CHARS:
            raise MalformedNote(f"must have at most {MAX_NOTE_CHARS} characters")
        text, blank, lines = note.rpartition("\n\n")
        if not blank or not lines.endswith("\n"):
            raise MalformedNote("must end with a blank line and lines of signatures")
        signatures = lines.removesuffix("\n").split("\n")
        if len(signatures) > MAX_SIGNATURES:
            raise MalformedNote(f"must have at most {MAX_SIGNATURES} signatures")
        return cls(text=f"{text}\n", signatures=tuple(map(_signature, signatures)))


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldingSignature:
    """A signature of a known key that holds. `timestamp_s` is a witness's time."""

    key: NoteKey
    timestamp_s: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteVerdict:
    """The known keys whose signatures hold, each once, and those that have a wrong one.

    A note counts where at least one holds and none is wrong.
    """

    holding: tuple[HoldingSignature, ...]
    wrong: tuple[NoteKey, ...]

    @property
    def counts(self) -> bool:
        """Return whether the note's text may be believed."""
        return bool(self.holding) and not self.wrong


def verdict_on(
    note: SignedNote, keys: Iterable[NoteKey], check: SignatureCheck
) -> NoteVerdict:
    """Return which of `keys` signed the note; signatures of others are passed over.

    Raises: `InvalidEvent` naming the field `public_key` where a key that is asked is
    none of its kind.
    """
    known = {(key.name, key.key_hash): key for key in keys}
    holding: dict[NoteKey, HoldingSignature] = {}
    wrong: dict[NoteKey, None] = {}
    for signature in note.signatures:
        key = known.get((signature.name, signature.key_hash))
        if key is None:
            continue
        found = _held(key, note.text, signature.value, check)
        if found is None:
            wrong[key] = None
        else:
            holding.setdefault(key, found)
    return NoteVerdict(holding=tuple(holding.values()), wrong=tuple(wrong))


def ecdsa_signature(key: NoteKey, raw: bytes) -> NoteSignature:
    """Return the line of a signature r || s over the note's text in UTF-8.

    Raises: `InvalidEvent` where `raw` is no signature.
    """
    return NoteSignature(name=key.name, key_hash=key.key_hash, value=der_of_raw(raw))


def ed25519_signature(key: NoteKey, signature: bytes) -> NoteSignature:
    """Return the line of a signature over the note's text in UTF-8."""
    return NoteSignature(name=key.name, key_hash=key.key_hash, value=signature)


def cosignature(key: NoteKey, timestamp_s: int, signature: bytes) -> NoteSignature:
    """Return the line of a witness's signature over `cosigned_message`.

    Units: `timestamp_s` counts seconds since the Unix epoch (UTC).
    """
    value = timestamp_s.to_bytes(TIMESTAMP_BYTES, "big") + signature
    return NoteSignature(name=key.name, key_hash=key.key_hash, value=value)


def cosigned_message(text: str, timestamp_s: int) -> bytes:
    """Return what a witness signs of a note's text at that time."""
    return f"cosignature/v1\ntime {timestamp_s}\n{text}".encode()


def decoded_base64(encoded: str, what: str) -> bytes:
    """Return the bytes of `encoded`, which must be their one base64 encoding.

    Raises: `MalformedNote`, which calls it `what`.
    """
    try:
        found = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise MalformedNote(f"{what} must be base64") from error
    if base64.b64encode(found).decode() != encoded:
        raise MalformedNote(f"{what} must be in its one base64 encoding")
    return found


def _held(
    key: NoteKey, text: str, value: bytes, check: SignatureCheck
) -> HoldingSignature | None:
    """Return the signature where it holds, else None."""
    public, timestamp_s = key.public_key, None
    if key.kind is NoteKeyKind.ECDSA:
        try:
            raw = raw_of_der(value)
        except InvalidEvent:
            return None
        holds = check.ecdsa(public, text.encode(), raw)
    elif key.kind is NoteKeyKind.ED25519:
        holds = check.ed25519(public, text.encode(), value)
    else:
        timestamp_s = int.from_bytes(value[:TIMESTAMP_BYTES], "big")
        message = cosigned_message(text, timestamp_s)
        holds = timestamp_s <= MAX_TIMESTAMP and check.ed25519(
            public, message, value[TIMESTAMP_BYTES:]
        )
    return HoldingSignature(key=key, timestamp_s=timestamp_s) if holds else None


def _signature(line: str) -> NoteSignature:
    if not line.startswith(_DASH):
        raise MalformedNote("a line of a signature must begin with a dash (U+2014)")
    name, _, encoded = line.removeprefix(_DASH).partition(" ")
    decoded = decoded_base64(encoded, "a signature")
    return NoteSignature(
        name=name, key_hash=decoded[:KEY_HASH_BYTES], value=decoded[KEY_HASH_BYTES:]
    )


def _split_kind(decoded: bytes) -> tuple[NoteKeyKind, bytes]:
    try:
        return NoteKeyKind(decoded[0]), decoded[1:]
    except (IndexError, ValueError) as error:
        raise MalformedNote("a verifier key's kind must be 1, 2 or 4") from error


def check_note_name(name: str) -> None:
    """Check what a key, and so a log or a witness, may be called in a note.

    Raises: `MalformedNote`.
    """
    if not name or "+" in name or any(char.isspace() or char < " " for char in name):
        raise MalformedNote("a key's name must have no spaces, no + and not be empty")
    _check_utf8(name)


def _check_text(text: str) -> None:
    if not text.endswith("\n"):
        raise MalformedNote("the text must end with a line's end")
    if any(char < " " and char != "\n" for char in text):
        raise MalformedNote("the text must have no control characters")
    _check_utf8(text)


def _check_utf8(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise MalformedNote("must be text that UTF-8 has") from error
