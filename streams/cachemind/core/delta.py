"""What differs between the entries of two versions, field by field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum

from cachemind.core import json_patch
from cachemind.core.json_patch import Json, Operation
from cachemind.core.state import Entry
from cachemind.types import ExactKey


class ChangeKind(StrEnum):
    """What a rollback does to one entry."""

    RESTORED = "restored"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class EntryChange:
    """One key whose entry is not the same; at most one of both is None."""

    key: ExactKey
    before: Entry | None
    after: Entry | None

    @property
    def kind(self) -> ChangeKind:
        """Return what becomes of the entry."""
        if self.before is None:
            return ChangeKind.RESTORED
        return ChangeKind.REMOVED if self.after is None else ChangeKind.CHANGED

    @property
    def held_bytes(self) -> int:
        """Return about how many bytes both entries take in memory."""
        return sum(one.held_bytes for one in (self.before, self.after) if one)

    def patch(self) -> tuple[Operation, ...]:
        """Return the RFC 6902 patch from the entry's fields before to those after."""
        return json_patch.diff(_document(self.before), _document(self.after))


@dataclass(frozen=True, slots=True)
class Delta:
    """The keys whose entries are not the same, in key order.

    Of a very large one only the first changes are kept; `left_out` counts the others.
    """

    changes: tuple[EntryChange, ...]
    left_out: Mapping[ChangeKind, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.changes) + sum(self.left_out.values())

    def count(self, kind: ChangeKind) -> int:
        """Return how many entries have this fate."""
        shown = sum(change.kind is kind for change in self.changes)
        return shown + self.left_out.get(kind, 0)

    def entries(self) -> Mapping[ExactKey, Entry | None]:
        """Return what each of the keys becomes."""
        return {change.key: change.after for change in self.changes}


def delta(
    keys: Iterable[ExactKey],
    before: Mapping[ExactKey, Entry | None],
    after: Mapping[ExactKey, Entry | None],
) -> Delta:
    """Return what differs at `keys`; a key that a mapping lacks is absent."""
    pairs = ((key, before.get(key), after.get(key)) for key in sorted(set(keys)))
    return Delta(
        tuple(EntryChange(key, one, other) for key, one, other in pairs if one != other)
    )


def fields_of(entry: Entry) -> dict[str, Json]:
    """Return the entry's fields as JSON values: bytes as hex, tuples as lists."""
    return {each.name: _json(getattr(entry, each.name)) for each in fields(entry)}


def _document(entry: Entry | None) -> Json:
    return {} if entry is None else fields_of(entry)


def _json(value: object) -> Json:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return [_json(each) for each in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    raise TypeError(f"an entry has no {type(value).__name__}")
