"""An `Entry` as bytes: what the store holds, the digest covers and a hit serves.

Layout, integers big-endian, no padding:

    0    u8    format (1)
    1    u8    flags: 1 pinned, 2 has a prompt, 4 has an embedding
    2    u64   offset      10  u64  version     18  u64  timeline
    26   i64   stored_at   34  i64  expires_at  (nanoseconds of event time)
    42   32 B  prompt_hash
    74   32 B  response_hash
    106  u32   length of the response
    110  u64   right      118  u64  wrong
    126  32 B  exact_key  158  32 B context_key  190  32 B request_hash
    222  16 B  event_id   238  16 B snapshot_id
    254  the response, then with 4 byte lengths or counts: semantic_key, encoder_id,
         model, parameters, finish_reason, tags, source_chunks, and where flagged
         prompt, embedding

The head is fixed so that a hit needs one `struct` call and one slice. One entry has
one encoding: digests of it are equal on every replica.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from cachemind.core.packing import pack_blob, pack_many, pack_text
from cachemind.core.state import Entry
from cachemind.errors import CorruptState
from cachemind.types import (
    HASH_BYTES,
    Offset,
    Sha256,
    Timeline,
    Version,
)

FORMAT: Final = 1
PINNED: Final = 1
HAS_PROMPT: Final = 2
HAS_EMBEDDING: Final = 4
_KNOWN_FLAGS: Final = PINNED | HAS_PROMPT | HAS_EMBEDDING
_HEAD: Final = struct.Struct(">BBQQQqq32s32sI")
_REST: Final = struct.Struct(">QQ32s32s32s16s16s")
_WHOLE_HEAD: Final = struct.Struct(_HEAD.format + _REST.format[1:])
_RESPONSE_AT: Final = _WHOLE_HEAD.size
_EXPIRES: Final = struct.Struct(">q")
_EXPIRES_AT: Final = 34
_LENGTH: Final = struct.Struct(">I")
_LENGTH_BYTES: Final = _LENGTH.size
_NONE: Final = _LENGTH.pack(0)
_WHAT: Final = "entry"


@dataclass(frozen=True, slots=True)
class Served:
    """What a hit needs of a stored entry, without decoding the rest."""

    offset: Offset
    version: Version
    timeline: Timeline
    stored_at_ns: int
    expires_at_ns: int
    prompt_hash: Sha256
    response_hash: Sha256
    flags: int
    response: bytes

    @property
    def pinned(self) -> bool:
        """Return whether the entry is kept from eviction."""
        return bool(self.flags & PINNED)


def serving(raw: bytes) -> Served:
    """Return the part of a stored entry that a hit is answered with.

    Raises: `CorruptState`.
    """
    if len(raw) < _RESPONSE_AT or raw[0] != FORMAT or raw[1] > _KNOWN_FLAGS:
        raise _bad_head(raw)
    head = _HEAD.unpack_from(raw)
    end = _RESPONSE_AT + head[9]
    if end > len(raw):
        raise CorruptState(_WHAT, f"ends at byte {len(raw)} of at least {end}")
    return Served(
        offset=head[2],
        version=head[3],
        timeline=head[4],
        stored_at_ns=head[5],
        expires_at_ns=head[6],
        prompt_hash=head[7],
        response_hash=head[8],
        flags=head[1],
        response=raw[_RESPONSE_AT:end],
    )


def expiry(raw: bytes) -> tuple[int, bool]:
    """Return when a stored entry expires (ns of event time), and whether it is pinned.

    Raises: `CorruptState`.
    """
    if len(raw) < _RESPONSE_AT or raw[0] != FORMAT or raw[1] > _KNOWN_FLAGS:
        raise _bad_head(raw)
    return _EXPIRES.unpack_from(raw, _EXPIRES_AT)[0], bool(raw[1] & PINNED)


def encode(entry: Entry) -> bytes:
    """Return the bytes of `entry`. Out-of-range fields are a caller's bug."""
    raw = entry.encoded
    if raw is None:
        raw = _encode(entry)
        entry.tell_encoded(raw)
    return raw


def _encode(entry: Entry) -> bytes:
    response = entry.response
    return b"".join(
        (
            _WHOLE_HEAD.pack(
                FORMAT,
                _flags(entry),
                entry.offset,
                entry.version,
                entry.timeline,
                entry.stored_at_ns,
                entry.expires_at_ns,
                entry.prompt_hash,
                entry.response_hash,
                len(response),
                entry.right,
                entry.wrong,
                entry.exact_key,
                entry.context_key,
                entry.request_hash,
                entry.event_id,
                bytes.fromhex(entry.snapshot_id),
            ),
            response,
            pack_text(entry.semantic_key),
            pack_text(entry.encoder_id),
            pack_text(entry.model),
            pack_text(entry.parameters),
            pack_text(entry.finish_reason),
            pack_many(map(pack_text, entry.tags)) if entry.tags else _NONE,
            pack_many(entry.source_chunks) if entry.source_chunks else _NONE,
            b"" if entry.prompt is None else pack_text(entry.prompt),
            b"" if entry.embedding is None else pack_blob(entry.embedding),
        )
    )


def same(one: Entry | None, other: Entry | None) -> bool:
    """Return whether both are equal: one entry has one encoding."""
    if one is None or other is None:
        return one is other
    return encode(one) == encode(other)


def decode(raw: bytes) -> Entry:
    """Return the entry whose bytes are `raw`. Raises: `CorruptState`."""
    if len(raw) < _RESPONSE_AT or raw[0] != FORMAT or raw[1] > _KNOWN_FLAGS:
        raise _bad_head(raw)
    try:
        entry, end = _decode(raw)
    except struct.error as error:
        raise CorruptState(_WHAT, f"ends at byte {len(raw)}, in a length") from error
    except UnicodeDecodeError as error:
        raise CorruptState(_WHAT, "text is not UTF-8") from error
    if end != len(raw):
        raise CorruptState(_WHAT, f"ends at byte {len(raw)}, its fields at {end}")
    entry.tell_encoded(raw)
    return entry


def _decode(raw: Any) -> tuple[Entry, int]:
    """Return the entry and where it ends: past the end of `raw` where that is cut.

    Records are typed `Any`, so that a slice is an identifier without a call.
    """
    (
        _,
        flags,
        offset,
        version,
        timeline,
        stored_at_ns,
        expires_at_ns,
        prompt_hash,
        response_hash,
        response_bytes,
        right,
        wrong,
        exact_key,
        context_key,
        request_hash,
        event_id,
        snapshot_id,
    ) = _WHOLE_HEAD.unpack_from(raw)
    at = _RESPONSE_AT + response_bytes
    response = raw[_RESPONSE_AT:at]
    texts, at = _texts(raw, at, 5)
    semantic_key, encoder_id, model, parameters, finish_reason = texts
    tags, at = _many(raw, at, _text)
    source_chunks, at = _many(raw, at, _hash)
    prompt, at = _text(raw, at) if flags & HAS_PROMPT else (None, at)
    embedding, at = _blob(raw, at) if flags & HAS_EMBEDDING else (None, at)
    entry = Entry(
        exact_key=exact_key,
        context_key=context_key,
        event_id=event_id,
        offset=offset,
        version=version,
        timeline=timeline,
        stored_at_ns=stored_at_ns,
        expires_at_ns=expires_at_ns,
        pinned=flags & PINNED != 0,
        right=right,
        wrong=wrong,
        prompt_hash=prompt_hash,
        request_hash=request_hash,
        response_hash=response_hash,
        snapshot_id=snapshot_id.hex(),
        semantic_key=semantic_key,
        encoder_id=encoder_id,
        model=model,
        parameters=parameters,
        finish_reason=finish_reason,
        tags=tags,
        source_chunks=source_chunks,
        prompt=prompt,
        embedding=embedding,
        response=response,
    )
    return entry, at


def _text(raw: Any, at: int) -> tuple[Any, int]:
    start = at + _LENGTH_BYTES
    end = start + _LENGTH.unpack_from(raw, at)[0]
    return raw[start:end].decode(), end


def _texts(raw: Any, at: int, count: int) -> tuple[list[Any], int]:
    found = []
    for _ in range(count):
        start = at + _LENGTH_BYTES
        at = start + _LENGTH.unpack_from(raw, at)[0]
        found.append(raw[start:at].decode())
    return found, at


def _blob(raw: Any, at: int) -> tuple[Any, int]:
    start = at + _LENGTH_BYTES
    end = start + _LENGTH.unpack_from(raw, at)[0]
    return raw[start:end], end


def _hash(raw: Any, at: int) -> tuple[Any, int]:
    end = at + HASH_BYTES
    if end > len(raw):
        # A slice past the end is no error: 2**32 of them would take long to fail.
        raise CorruptState(_WHAT, f"ends at byte {len(raw)} of {end}")
    return raw[at:end], end


def _many(
    raw: Any, at: int, take: Callable[[Any, int], tuple[Any, int]]
) -> tuple[tuple[Any, ...], int]:
    count, at = _LENGTH.unpack_from(raw, at)[0], at + _LENGTH_BYTES
    if not count:
        return (), at
    found = []
    for _ in range(count):
        one, at = take(raw, at)
        found.append(one)
    return tuple(found), at


def _flags(entry: Entry) -> int:
    return (
        (PINNED if entry.pinned else 0)
        | (HAS_PROMPT if entry.prompt is not None else 0)
        | (HAS_EMBEDDING if entry.embedding is not None else 0)
    )


def _bad_head(raw: bytes) -> CorruptState:
    if len(raw) < _RESPONSE_AT:
        return CorruptState(_WHAT, f"ends at byte {len(raw)} of {_RESPONSE_AT}")
    if raw[0] != FORMAT:
        return CorruptState(_WHAT, f"format {raw[0]}, this build reads {FORMAT}")
    return CorruptState(_WHAT, f"unknown flags {raw[1]}")
