"""Is what a rollback is about to write the state that history recorded?

1. The totals after the delta (digest, entries) are those of the target's version row.
2. Each restored entry is at its own key.
3. By strategy. `field-hash`: each field of each restored entry has the same SHA-256
   after a round trip through the store's bytes. `json-patch`: the RFC 6902 patch from
   live to target gives the target, and the patch back gives what is live.

A delta that is only partly there, or that mixes two versions, fails at 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from hashlib import sha256
from operator import attrgetter
from typing import Final, assert_never

from cachemind.core import json_patch
from cachemind.core.delta import Delta, fields_of
from cachemind.core.digest import to_hex
from cachemind.core.entry_bytes import decode, encode
from cachemind.core.json_patch import Json
from cachemind.core.rollback_report import Strategy
from cachemind.core.state import Entry, NamespaceState
from cachemind.errors import RollbackRejected


def require_entries(strategy: Strategy, delta: Delta) -> None:
    """Check each restored entry for itself. Raises: `RollbackRejected`."""
    for change in delta.changes:
        if change.after is not None and change.after.exact_key != change.key:
            raise RollbackRejected("an entry is not at its own key")
    match strategy:
        case Strategy.FIELD_HASH:
            _require_field_hashes(delta)
        case Strategy.JSON_PATCH:
            _require_patches(delta)
        case _:
            assert_never(strategy)


def require_totals(after: NamespaceState, digest: int, entries: int) -> None:
    """Check a rollback's outcome against what its target's row says.

    Raises: `RollbackRejected`.
    """
    if after.digest != digest:
        found, expected = to_hex(after.digest), to_hex(digest)
        raise RollbackRejected(f"digest {found} where {expected} was recorded")
    if after.entries != entries:
        raise RollbackRejected(f"{after.entries} entries where {entries} were recorded")


class FieldHashes(dict[tuple[type, object], bytes]):
    """SHA-256 of fields' own bytes, of each value that was asked for once.

    Most values are asked for twice, before and after their round trip, and many are
    those of other entries too. Holds them: to be let go with the part of the delta.
    """

    def of(self, entry: Entry) -> tuple[bytes, ...]:
        """Return the hashes of the entry's fields, in the fields' order.

        Raises: `TypeError` for a value of a type that no field has.
        """
        values = _VALUES(entry)
        return tuple(map(self.__getitem__, zip(map(type, values), values, strict=True)))

    def __missing__(self, field: tuple[type, object]) -> bytes:
        """Return the hash of the value in `field`, which was not asked for before."""
        found = self[field] = sha256(_field_bytes(field[1])).digest()
        return found


def field_hashes(entry: Entry) -> tuple[bytes, ...]:
    """Return SHA-256 of each field's own bytes, in the fields' order.

    Raises: `TypeError` for a value of a type that no field has.
    """
    return FieldHashes().of(entry)


_VALUES: Final = attrgetter(*(each.name for each in fields(Entry)))


def _field_bytes(value: object) -> bytes:
    # Equal types only: a text is never taken for the bytes that it encodes to.
    if isinstance(value, bytes):
        return b"b" + value
    if isinstance(value, str):
        return f"s{value}".encode()
    if isinstance(value, tuple):
        parts = [_field_bytes(each) for each in value]
        return b"t" + b"".join(b"%d:%b" % (len(part), part) for part in parts)
    if value is None or isinstance(value, int):
        return f"{type(value).__name__}{value}".encode()
    raise TypeError(f"an entry has no {type(value).__name__}")


def _require_field_hashes(delta: Delta) -> None:
    hashes = FieldHashes()
    for change in delta.changes:
        if change.after is None:
            continue
        before, after = change.after, decode(encode(change.after))
        if hashes.of(before) != hashes.of(after):
            raise RollbackRejected("a field changes when it is stored")


def _require_patches(delta: Delta) -> None:
    for change in delta.changes:
        live, target = _document(change.before), _document(change.after)
        there = json_patch.patched(live, json_patch.diff(live, target))
        back = json_patch.patched(target, json_patch.diff(target, live))
        if not (json_patch.same(there, target) and json_patch.same(back, live)):
            raise RollbackRejected("the patch to the target does not round trip")


def _document(entry: Entry | None) -> Mapping[str, Json]:
    """Return the part of the namespace, as JSON, that a change is in."""
    return {} if entry is None else {entry.exact_key.hex(): fields_of(entry)}
