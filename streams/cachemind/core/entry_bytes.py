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
from dataclasses import dataclass
from typing import Final

from cachemind.core.packing import Unpacker, pack_blob, pack_many, pack_text
from cachemind.core.state import Entry
from cachemind.errors import CorruptState
from cachemind.types import (
    HASH_BYTES,
    ContextKey,
    EncoderId,
    EventId,
    ExactKey,
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
_RESPONSE_AT: Final = _HEAD.size + _REST.size
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


def encode(entry: Entry) -> bytes:
    """Return the bytes of `entry`. Out-of-range fields are a caller's bug."""
    return b"".join(
        (
            _HEAD.pack(
                FORMAT,
                _flags(entry),
                entry.offset,
                entry.version,
                entry.timeline,
                entry.stored_at_ns,
                entry.expires_at_ns,
                entry.prompt_hash,
                entry.response_hash,
                len(entry.response),
            ),
            _REST.pack(
                entry.right,
                entry.wrong,
                entry.exact_key,
                entry.context_key,
                entry.request_hash,
                entry.event_id,
                bytes.fromhex(entry.snapshot_id),
            ),
            entry.response,
            pack_text(entry.semantic_key),
            pack_text(entry.encoder_id),
            pack_text(entry.model),
            pack_text(entry.parameters),
            pack_text(entry.finish_reason),
            pack_many(map(pack_text, entry.tags)),
            pack_many(entry.source_chunks),
            b"" if entry.prompt is None else pack_text(entry.prompt),
            b"" if entry.embedding is None else pack_blob(entry.embedding),
        )
    )


def decode(raw: bytes) -> Entry:
    """Return the entry whose bytes are `raw`. Raises: `CorruptState`."""
    served = serving(raw)
    rest = _REST.unpack_from(raw, _HEAD.size)
    tail = Unpacker(_WHAT, raw, _RESPONSE_AT + len(served.response))
    entry = Entry(
        exact_key=ExactKey(rest[2]),
        context_key=ContextKey(rest[3]),
        event_id=EventId(rest[5]),
        offset=served.offset,
        version=served.version,
        timeline=served.timeline,
        stored_at_ns=served.stored_at_ns,
        expires_at_ns=served.expires_at_ns,
        pinned=served.pinned,
        right=rest[0],
        wrong=rest[1],
        prompt_hash=served.prompt_hash,
        request_hash=Sha256(rest[4]),
        response_hash=served.response_hash,
        snapshot_id=rest[6].hex(),
        semantic_key=tail.text(),
        encoder_id=EncoderId(tail.text()),
        model=tail.text(),
        parameters=tail.text(),
        finish_reason=tail.text(),
        tags=tail.many(tail.text),
        source_chunks=tail.many(lambda: Sha256(tail.fixed(HASH_BYTES))),
        prompt=tail.text() if served.flags & HAS_PROMPT else None,
        embedding=tail.blob() if served.flags & HAS_EMBEDDING else None,
        response=served.response,
    )
    tail.end()
    return entry


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
