"""The bytes of an encrypted payload or vector on the log.

Layout, no padding:

    0    4 B   C1 43 4D 50: a byte that begins no UTF-8 text, and "CMP"
    4    u8    version (1)
    5    27 B  key id, ASCII (see `core.data_key`)
    32   16 B  salt of the writer
    48   12 B  nonce
    60   AES-256-GCM ciphertext and its tag of 16 bytes

The key of the cipher is HMAC-SHA256(data key, "cachemind/payload-subkey/v1" || 00 ||
salt || 01). Authenticated with it is the PAE of domain, kind ("payload" or "vector"),
namespace, key id and exact key: ciphertext that is moved to another entry, namespace or
key, or from one use to the other, does not open.

Why a salt: a nonce of 96 random bits may be drawn 2**32 times under one key (NIST SP
800-38D section 8.3), and no writer can count what the others draw. Each process has a
key of its own by its salt, counts what it seals, and draws a new salt before 2**32.
Source: RFC 5869 section 2.3 for the subkey, PASETO for PAE.

What a payload holds: the lengths of prompt (FF FF FF FF where there is none) and
parameters, 4 bytes each; prompt and parameters in UTF-8; the response to the end. So a
hit needs one slice. A vector holds its float16 values.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from enum import StrEnum
from struct import Struct
from typing import Final

from cachemind.core.data_key import KEY_ID_CHARS
from cachemind.core.tagged_hash import pae
from cachemind.errors import PayloadUnreadable
from cachemind.types import HASH_BYTES, Namespace, Sha256

MAGIC: Final = b"\xc1CMP"
SALT_BYTES: Final = 16
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
MOST_SEALED: Final = 2**32
"""Under one salt. Source: NIST SP 800-38D section 8.3."""

_VERSION: Final = 1
_HEAD: Final = Struct(f">4sB{KEY_ID_CHARS}s{SALT_BYTES}s{NONCE_BYTES}s")
HEAD_BYTES: Final = _HEAD.size
_LENGTHS: Final = Struct(">II")
_NO_PROMPT: Final = 2**32 - 1
_PROMPTLESS: Final = b"\xff\xff\xff\xff"
_DOMAIN: Final = b"cachemind/sealed-payload/v1"
_BLINDING: Final = b"cachemind/blinded-hash/v1\0"
_SUBKEY: Final = b"cachemind/payload-subkey/v1\0"


class Kind(StrEnum):
    """What is sealed."""

    PAYLOAD = "payload"
    VECTOR = "vector"


class Unreadable(StrEnum):
    """Why a payload cannot be read: the words of `PayloadUnreadable.reason`."""

    PLAIN = "payload-plain"
    SEALED = "payload-sealed"
    NO_KEY = "payload-no-key"
    DAMAGED = "payload-damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """What people wrote and were told, with the request's parameters."""

    prompt: str | None
    parameters: str
    response: bytes


def is_sealed(raw: bytes) -> bool:
    """Return whether these bytes of a response or a vector are sealed."""
    return raw.startswith(MAGIC)


def join(key_id: bytes, salt: bytes, nonce: bytes, sealed: bytes) -> bytes:
    """Return the bytes for the log."""
    return _HEAD.pack(MAGIC, _VERSION, key_id, salt, nonce) + sealed


def split(raw: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """Return key id, salt, nonce, and ciphertext with tag.

    Raises: `PayloadUnreadable` where the bytes are not sealed, cut, or of another
    version.
    """
    if not raw.startswith(MAGIC):
        raise PayloadUnreadable(Unreadable.PLAIN)
    if len(raw) < HEAD_BYTES + TAG_BYTES:
        raise PayloadUnreadable(Unreadable.DAMAGED)
    _, version, key_id, salt, nonce = _HEAD.unpack_from(raw)
    if version != _VERSION:
        raise PayloadUnreadable(Unreadable.DAMAGED)
    return key_id, salt, nonce, raw[HEAD_BYTES:]


def subkey(data_key: bytes, salt: bytes) -> bytes:
    """Return the key that the writer with this salt seals under: 32 bytes."""
    return hmac.digest(data_key, _SUBKEY + salt + b"\1", "sha256")


def blinded(data_key: bytes, digest: Sha256) -> Sha256:
    """Return HMAC-SHA256 of a hash under a key that follows from the data key."""
    key = hmac.digest(data_key, _BLINDING + b"\1", "sha256")
    return Sha256(hmac.digest(key, digest, "sha256"))


def bound(kind: Kind, namespace: Namespace, key_id: bytes, exact_key: bytes) -> bytes:
    """Return what is authenticated with a ciphertext: what for, whose, and where."""
    return pae(_DOMAIN, kind.encode(), namespace.encode(), key_id, exact_key)


def bound_before(kind: Kind, namespace: Namespace, key_id: bytes) -> bytes:
    """Return `bound` up to the exact key, which is always as long: made once."""
    return bound(kind, namespace, key_id, bytes(HASH_BYTES))[:-HASH_BYTES]


def pack_payload(payload: Payload) -> bytes:
    """Return the bytes that are to be sealed."""
    prompt = None if payload.prompt is None else payload.prompt.encode()
    parameters = payload.parameters.encode()
    lengths = _LENGTHS.pack(
        _NO_PROMPT if prompt is None else len(prompt), len(parameters)
    )
    return b"".join((lengths, prompt or b"", parameters, payload.response))


def unpack_payload(raw: bytes) -> Payload:
    """Return what was sealed. Raises: `PayloadUnreadable`."""
    prompt_end, response_at = _places(raw)
    has_prompt = not raw.startswith(_PROMPTLESS)
    try:
        return Payload(
            prompt=raw[_LENGTHS.size : prompt_end].decode() if has_prompt else None,
            parameters=raw[prompt_end:response_at].decode(),
            response=raw[response_at:],
        )
    except UnicodeDecodeError as error:
        raise PayloadUnreadable(Unreadable.DAMAGED) from error


def unpack_response(raw: bytes) -> bytes:
    """Return the response of what was sealed. Raises: `PayloadUnreadable`."""
    return raw[_places(raw)[1] :]


def _places(raw: bytes) -> tuple[int, int]:
    """Return where the prompt ends and where the response begins."""
    if len(raw) < _LENGTHS.size:
        raise PayloadUnreadable(Unreadable.DAMAGED)
    prompt, parameters = _LENGTHS.unpack_from(raw)
    prompt_end = _LENGTHS.size + (0 if prompt == _NO_PROMPT else prompt)
    response_at = prompt_end + parameters
    if response_at > len(raw):
        raise PayloadUnreadable(Unreadable.DAMAGED)
    return prompt_end, response_at
