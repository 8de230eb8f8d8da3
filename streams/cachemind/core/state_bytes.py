"""Namespace states, hits, history, vectors and journal lines as bytes.

Each row starts with its format byte and has exactly one encoding. What a row's key
already says (namespace, exact key, version, offset) is not repeated in the value,
except a namespace's own name.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from cachemind.core.digest import to_bytes
from cachemind.core.packing import (
    Unpacker,
    pack_i64,
    pack_many,
    pack_optional,
    pack_text,
    pack_u64,
)
from cachemind.core.state import Change, ContextRow, Hits, NamespaceState, VersionRow
from cachemind.types import (
    HASH_BYTES,
    ID_BYTES,
    ContextKey,
    EventId,
    ExactKey,
    Namespace,
    Offset,
    Timeline,
    Version,
)

FORMAT: Final = 1
_FORMAT_BYTE: Final = bytes([FORMAT])
_VERSION_FIXED: Final = struct.Struct(f">QQ{HASH_BYTES}sQ{ID_BYTES}s")
_VERSION_HEAD: Final = struct.Struct(f">B{_VERSION_FIXED.format[1:]}I")
_TIME_AND_LENGTH: Final = struct.Struct(">qI")
_VECTOR_HEAD: Final = struct.Struct(">BqI")
_LENGTH: Final = struct.Struct(">I")


def encode_state(state: NamespaceState) -> bytes:
    """Return the row of a namespace."""
    return b"".join(
        (
            _FORMAT_BYTE,
            pack_text(state.namespace),
            pack_u64(state.version),
            pack_u64(state.timeline),
            to_bytes(state.digest),
            pack_u64(state.entries),
            pack_u64(state.entry_bytes),
            pack_text(state.policy),
            pack_many(map(pack_text, state.shredded_keys)),
            pack_optional(state.last_rollback),
            pack_many(
                pack_text(word) + pack_u64(count)
                for word, count in sorted(state.counts.items())
            ),
        )
    )


def decode_state(raw: bytes) -> NamespaceState:
    """Return the namespace of a row. Raises: `CorruptState`."""
    row = _open("namespace state", raw)
    state = NamespaceState(
        namespace=Namespace(row.text()),
        version=Version(row.u64()),
        timeline=Timeline(row.u64()),
        digest=int.from_bytes(row.fixed(HASH_BYTES), "big"),
        entries=row.u64(),
        entry_bytes=row.u64(),
        policy=row.text(),
        shredded_keys=row.many(row.text),
        last_rollback=row.optional(lambda: EventId(row.fixed(ID_BYTES))),
        counts=dict(row.many(lambda: (row.text(), row.u64()))),
    )
    row.end()
    return state


def encode_hits(hits: Hits) -> bytes:
    """Return the row of an entry's hit history."""
    times = pack_many(map(pack_i64, hits.last_ns))
    return _FORMAT_BYTE + pack_u64(hits.count) + times


def decode_hits(raw: bytes) -> Hits:
    """Return the hit history of a row. Raises: `CorruptState`."""
    row = _open("hits", raw)
    hits = Hits(count=row.u64(), last_ns=row.many(row.i64))
    row.end()
    return hits


def encode_version(row: VersionRow) -> bytes:
    """Return the row of one version, which the key names."""
    kind, principal, reason = (
        row.kind.encode(),
        row.principal.encode(),
        row.reason.encode(),
    )
    return b"".join(
        (
            _VERSION_HEAD.pack(
                FORMAT,
                row.offset,
                row.timeline,
                to_bytes(row.digest),
                row.entries,
                row.event_id,
                len(kind),
            ),
            kind,
            _TIME_AND_LENGTH.pack(row.occurred_at_ns, len(principal)),
            principal,
            pack_optional(None if row.target is None else pack_u64(row.target)),
            pack_optional(row.rollback_id),
            _LENGTH.pack(len(reason)),
            reason,
        )
    )


def decode_version(version: Version, raw: bytes) -> VersionRow:
    """Return the history line of `version`. Raises: `CorruptState`."""
    row = _open("version", raw)
    offset, timeline, digest, entries, event_id = row.fields(_VERSION_FIXED)
    line = VersionRow(
        version=version,
        offset=offset,
        timeline=timeline,
        digest=int.from_bytes(digest, "big"),
        entries=entries,
        event_id=event_id,
        kind=row.text(),
        occurred_at_ns=row.i64(),
        principal=row.text(),
        target=row.optional(lambda: Version(row.u64())),
        rollback_id=row.optional(lambda: EventId(row.fixed(ID_BYTES))),
        reason=row.text(),
    )
    row.end()
    return line


def encode_context(row: ContextRow) -> bytes:
    """Return the row of one vector, whose exact key the key names."""
    return encode_vector(row.expires_at_ns, row.embedding)


def encode_vector(expires_at_ns: int, embedding: bytes) -> bytes:
    """Return the row of one vector, of which the key says the rest."""
    return _VECTOR_HEAD.pack(FORMAT, expires_at_ns, len(embedding)) + embedding


def decode_context(exact_key: ExactKey, raw: bytes) -> ContextRow:
    """Return the vector of `exact_key`. Raises: `CorruptState`."""
    row = _open("context", raw)
    expires_at_ns, embedding = row.i64(), row.blob()
    row.end()
    return ContextRow(
        exact_key=exact_key, embedding=embedding, expires_at_ns=expires_at_ns
    )


def encode_journal(previous: Offset, changes: Iterable[Change]) -> bytes:
    """Return the journal row of one commit.

    `previous` is the offset of the row before, so that a reader can tell a gap.
    """
    packed = _pack_changes(changes)
    return _FORMAT_BYTE + pack_i64(previous) + pack_many(packed)


def decode_journal(raw: bytes) -> tuple[Offset, Sequence[Change]]:
    """Return the previous row's offset and the changes. Raises: `CorruptState`."""
    row = _open("journal", raw)
    previous, changes = Offset(row.i64()), row.many(lambda: _change(row))
    row.end()
    return previous, changes


def _pack_changes(changes: Iterable[Change]) -> Iterator[bytes]:
    namespace, there, gone = None, b"", b""
    for change in changes:
        if change.namespace != namespace:
            namespace = change.namespace
            name = pack_text(namespace)
            there, gone = b"\x01" + name, b"\x00" + name
        head = there if change.present else gone
        yield head + change.context_key + change.exact_key


def _change(row: Unpacker) -> Change:
    return Change(
        present=row.flag(),
        namespace=Namespace(row.text()),
        context_key=ContextKey(row.fixed(HASH_BYTES)),
        exact_key=ExactKey(row.fixed(HASH_BYTES)),
    )


def _open(what: str, raw: bytes) -> Unpacker:
    row = Unpacker(what, raw)
    row.version(FORMAT)
    return row
