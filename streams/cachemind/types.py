"""Identifiers and small values. Nothing here does I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NewType, Self

from cachemind.errors import InvalidEvent

Namespace = NewType("Namespace", str)
"""Unit of isolation, order, access and rollback. See `check_namespace`."""

EventId = NewType("EventId", bytes)
"""UUIDv7, or UUIDv8 of a request (RFC 9562), 16 raw bytes; see `core.requested`."""

TraceId = NewType("TraceId", bytes)
"""W3C trace id, 16 raw bytes, not all zero."""

ContextKey = NewType("ContextKey", bytes)
"""What must be equal before two prompts may be compared by meaning: 32 bytes."""

ExactKey = NewType("ExactKey", bytes)
"""Context key plus the normalised last user turn: 32 bytes."""

Sha256 = NewType("Sha256", bytes)
"""32 raw bytes."""

Partition = NewType("Partition", int)
Offset = NewType("Offset", int)
Version = NewType("Version", int)
"""Per namespace, dense, from 1; 0 is the empty namespace."""

Timeline = NewType("Timeline", int)
"""The version of the rollback that opened it; 0 is the first."""

EncoderId = NewType("EncoderId", str)
Principal = NewType("Principal", str)
WriterId = NewType("WriterId", str)

EMPTY: Final = Version(0)
"""The version of a namespace that has no events."""

FIRST_TIMELINE: Final = Timeline(0)
HASH_BYTES: Final = 32
ID_BYTES: Final = 16
_NAMESPACE: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}\Z")


def check_namespace(text: str) -> Namespace:
    """Return `text` as a namespace: 1 to 128 of `a-z 0-9 . _ -`, alphanumeric first.

    Raises: `InvalidEvent` naming the field `namespace`.
    """
    if not _NAMESPACE.match(text):
        raise InvalidEvent(
            "namespace", "must be 1 to 128 of a-z 0-9 . _ - and start with a-z 0-9"
        )
    return Namespace(text)


@dataclass(frozen=True, slots=True, order=True)
class Lsn:
    """Where a record is on the WAL; written `3@12345`.

    Only LSNs of one partition are in order. Offsets have gaps.
    """

    partition: Partition
    offset: Offset

    def __str__(self) -> str:
        return f"{self.partition}@{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the LSN written as `partition@offset`.

        Raises: `InvalidEvent` naming the field `lsn`.
        """
        partition, at, offset = text.partition("@")
        if not (at and partition.isascii() and partition.isdigit()):
            raise InvalidEvent("lsn", "expected PARTITION@OFFSET, for example 3@12345")
        if not (offset.isascii() and offset.isdigit()):
            raise InvalidEvent("lsn", "expected PARTITION@OFFSET, for example 3@12345")
        return cls(Partition(int(partition)), Offset(int(offset)))
