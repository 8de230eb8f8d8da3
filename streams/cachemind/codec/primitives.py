"""Avro's primitive values without a schema: written in the shortest form, read fast.

What is read here is checked loosely: a cut value may come back short. Who reads must
compare where it ended, or what the value encodes to, with the record.

Records are typed `Any`, so that a slice is an identifier without a call: a `NewType`
costs as much as the slice, ten times a record.
Source: Avro 1.12 specification, "Binary Encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from cachemind.types import HASH_BYTES

MAX_LONG: Final = 2**63 - 1
MAX_INT: Final = 2**31 - 1
NULL: Final = b"\x00"
PRESENT: Final = b"\x02"
END: Final = b"\x00"
SMALL: Final = tuple(bytes([2 * value]) for value in range(64))
"""The encoded numbers of one byte, from 0."""

_PRESENT: Final = PRESENT[0]
_NINE: Final = struct.Struct("<QB")
_EIGHT: Final = struct.Struct("<Q")
_EIGHT_BYTES: Final = 1 << 49
"""From here on a number takes eight groups of 7 bits."""

_LONGEST: Final = 63
"""Highest shift of a varint's last byte; without it, hostile bytes cost O(n^2)."""

Reader = Callable[[Any, int], tuple[Any, int]]
"""Takes a record and where a value begins; returns it and where it ends."""


def natural(value: int) -> bytes:
    """Return a `long` that is not below zero. Raises: `ValueError`."""
    if 0 <= value < len(SMALL):
        return SMALL[value]
    if not 0 <= value <= MAX_LONG:
        raise ValueError("below zero, or past Avro's long")
    left = 2 * value
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def time(value: int) -> bytes:
    """Return what `natural` does; faster for a time from 1971 on, in ns or us.

    The inverse of `read_time`: eight groups of 7 bits move apart together.
    """
    left = 2 * value
    last = left >> 56
    if not (left >= _EIGHT_BYTES and last <= 0x7F):
        return natural(value)
    eight = left & 0x00FFFFFFFFFFFFFF
    eight = (eight & 0x000000000FFFFFFF) | (eight & 0x00FFFFFFF0000000) << 4
    eight = (eight & 0x00003FFF00003FFF) | (eight & 0x0FFFC0000FFFC000) << 2
    eight = (eight & 0x007F007F007F007F) | (eight & 0x3F803F803F803F80) << 1
    if last:
        return _NINE.pack(eight | 0x8080808080808080, last)
    return _EIGHT.pack(eight | 0x0080808080808080)


def small_natural(value: int) -> bytes:
    """Return an `int` that is not below zero. Raises: `ValueError`."""
    if value > MAX_INT:
        raise ValueError("past Avro's int")
    return natural(value)


def text(value: str) -> bytes:
    """Return a `string`. Raises: `ValueError` where it has no UTF-8."""
    return content(value.encode())


@lru_cache(maxsize=1024)
def word(value: str) -> bytes:
    """Return what `text` does, of a string that comes again and again."""
    return text(value)


def content(value: bytes) -> bytes:
    """Return `bytes`."""
    size = len(value)
    return (SMALL[size] if size < len(SMALL) else natural(size)) + value


def array(items: Sequence[bytes]) -> bytes:
    """Return an array of items that are encoded already."""
    return b"".join((natural(len(items)), *items, END)) if items else END


class NotCanonical(ValueError):
    """An encoding that these functions do not read: negative, in blocks, or cut."""


def read_natural(record: Any, at: int) -> tuple[Any, int]:
    """Read what `natural` writes."""
    byte = record[at]
    value = byte & 0x7F
    shift = 0
    while byte > 0x7F:
        at += 1
        shift += 7
        if shift > _LONGEST:
            raise NotCanonical
        byte = record[at]
        value |= (byte & 0x7F) << shift
    if value & 1 or value > 2 * MAX_LONG:
        raise NotCanonical
    return value >> 1, at + 1


def read_time(record: Any, at: int) -> tuple[Any, int]:
    """Read a number that most likely takes nine bytes: a time from 1971 to 2116.

    Halves the cost of `read_natural`'s loop: eight groups of 7 bits move together, in
    pairs, then in fours, then in eights.
    """
    eight, last = _NINE.unpack_from(record, at)
    if last > 0x7F or eight & 0x8080808080808080 != 0x8080808080808080:
        return read_natural(record, at)
    eight = (eight & 0x007F007F007F007F) | (eight & 0x7F007F007F007F00) >> 1
    eight = (eight & 0x00003FFF00003FFF) | (eight & 0x3FFF00003FFF0000) >> 2
    eight = (eight & 0x000000000FFFFFFF) | (eight & 0x0FFFFFFF00000000) >> 4
    if eight & 1:
        raise NotCanonical
    return (eight | last << 56) >> 1, at + 9


def read_text(record: Any, at: int) -> tuple[Any, int]:
    """Read what `text` writes."""
    size = record[at]
    if size & 0x81:
        found, at = read_content(record, at)
        return found.decode(), at
    end = at + 1 + (size >> 1)
    return record[at + 1 : end].decode(), end


def read_texts(record: Any, at: int, count: int) -> tuple[list[Any], int]:
    """Read `count` of what `text` writes, one after the other."""
    found = []
    for _ in range(count):
        size = record[at]
        if size & 0x81:
            one, at = read_text(record, at)
        else:
            start = at + 1
            at = start + (size >> 1)
            one = record[start:at].decode()
        found.append(one)
    return found, at


def read_content(record: Any, at: int) -> tuple[Any, int]:
    """Read what `content` writes."""
    size, at = read_natural(record, at)
    return record[at : at + size], at + size


def read_hash(record: Any, at: int) -> tuple[Any, int]:
    """Read a `fixed` of 32 bytes."""
    # A slice past the end is no error: an array of 2**62 of them would never end.
    end = at + HASH_BYTES
    if end > len(record):
        raise NotCanonical
    return record[at:end], end


def read_optional_hash(record: Any, at: int) -> tuple[Any, int]:
    """Read the union of null and a `fixed` of 32 bytes."""
    mark = record[at]
    at += 1
    if mark == _PRESENT:
        return record[at : at + HASH_BYTES], at + HASH_BYTES
    if mark:
        raise NotCanonical
    return None, at


def read_array(record: Any, at: int, item: Reader) -> tuple[tuple[Any, ...], int]:
    """Read what `array` writes."""
    if not record[at]:
        return (), at + 1
    count, at = read_natural(record, at)
    items = []
    for _ in range(count):
        one, at = item(record, at)
        items.append(one)
    if record[at]:
        raise NotCanonical
    return tuple(items), at + 1
