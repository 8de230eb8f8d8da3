"""Bytes of a fixed field order: big-endian integers, length-prefixed variable parts.

One value has exactly one encoding. A reader refuses bytes of another length or format.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from cachemind.errors import CorruptState

T = TypeVar("T")

MAX_I64: Final = 2**63 - 1
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_I64: Final = struct.Struct(">q")


def pack_u64(value: int) -> bytes:
    """Return 8 bytes; `struct.error` outside 0 .. 2**64-1 is a caller's bug."""
    return _U64.pack(value)


def pack_i64(value: int) -> bytes:
    """Return 8 bytes, two's complement."""
    return _I64.pack(value)


def pack_blob(value: bytes) -> bytes:
    """Return a 4 byte length and the bytes."""
    return _U32.pack(len(value)) + value


def pack_text(value: str) -> bytes:
    """Return a 4 byte length and the UTF-8 bytes."""
    raw = value.encode()
    return _U32.pack(len(raw)) + raw


def pack_many(values: Iterable[bytes]) -> bytes:
    """Return a 4 byte count and the already packed values."""
    packed = list(values)
    return _U32.pack(len(packed)) + b"".join(packed)


def pack_optional(value: bytes | None) -> bytes:
    """Return a presence byte and, where present, the already packed value."""
    return b"\x00" if value is None else b"\x01" + value


class Unpacker:
    """Takes fields off the front of `raw`. Raises: `CorruptState` throughout."""

    __slots__ = ("_at", "_raw", "_what")

    def __init__(self, what: str, raw: bytes, at: int = 0) -> None:
        self._what = what
        self._raw = raw
        self._at = at

    def fixed(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        end = self._at + size
        if end > len(self._raw):
            raise self._cut(end)
        part = self._raw[self._at : end]
        self._at = end
        return part

    def fields(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Return the fields of a fixed layout."""
        end = self._at + layout.size
        if end > len(self._raw):
            raise self._cut(end)
        found = layout.unpack_from(self._raw, self._at)
        self._at = end
        return found

    def u8(self) -> int:
        """Return one byte."""
        return self.fixed(1)[0]

    def u32(self) -> int:
        """Return a 4 byte count or length."""
        return int(self.fields(_U32)[0])

    def u64(self) -> int:
        """Return an unsigned 8 byte integer."""
        return int(self.fields(_U64)[0])

    def i64(self) -> int:
        """Return a signed 8 byte integer."""
        return int(self.fields(_I64)[0])

    def blob(self) -> bytes:
        """Return length-prefixed bytes."""
        return self.fixed(self.fields(_U32)[0])

    def text(self) -> str:
        """Return length-prefixed UTF-8."""
        try:
            return self.blob().decode()
        except UnicodeDecodeError as error:
            raise CorruptState(self._what, "text is not UTF-8") from error

    def flag(self) -> bool:
        """Return a byte that must be 0 or 1."""
        found = self.u8()
        if found > 1:
            raise CorruptState(self._what, f"flag byte is {found}")
        return found == 1

    def many(self, take: Callable[[], T]) -> tuple[T, ...]:
        """Return a counted sequence."""
        return tuple(take() for _ in range(self.u32()))

    def optional(self, take: Callable[[], T]) -> T | None:
        """Return a value where its presence byte says so."""
        return take() if self.flag() else None

    def version(self, known: int) -> None:
        """Take the format byte, which must be `known`."""
        found = self.u8()
        if found != known:
            raise CorruptState(self._what, f"format {found}, this build reads {known}")

    def _cut(self, end: int) -> CorruptState:
        return CorruptState(self._what, f"ends at byte {len(self._raw)} of {end}")

    def end(self) -> None:
        """Require that nothing is left."""
        if self._at != len(self._raw):
            left = len(self._raw) - self._at
            raise CorruptState(self._what, f"{left} bytes after the end")
