"""Finds where an encoded value ends, and refuses what the specification forbids.

The general reader trusts its bytes: it takes a negative branch as counted from the
end, any byte as true, any number as an `int`. Other languages' readers do not, and
whoever replays or audits the log must accept the same records as everyone else. So
its input is walked first. Nothing is built, so hostile lengths cost nothing.
Source: Avro 1.12 specification, "Binary Encoding".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from cachemind.errors import UndecodableRecord, UnknownSchema

Walk = Callable[[bytes, int], int]
"""Takes a record and where a value begins; returns where it ends."""

_LONGEST: Final = 63
_DOUBLE_BYTES: Final = 8


def compiled(schema: Any) -> Walk:
    """Return the walk over values of `schema`, in Avro's canonical form as JSON.

    The walk raises `UndecodableRecord`; `UnknownSchema` for a kind of event or an
    enum symbol past those that the schema has.
    """
    return _compiled(schema, {})


def _compiled(node: Any, named: dict[str, Walk]) -> Walk:
    if isinstance(node, list):
        return _union(node, [_compiled(branch, named) for branch in node])
    if isinstance(node, str):
        return _PRIMITIVES.get(node) or named[node]
    kind = node["type"]
    if kind == "array":
        return _array(_compiled(node["items"], named))
    if kind == "record":
        walk = _record([_compiled(one["type"], named) for one in node["fields"]])
    elif kind == "enum":
        walk = _enum(node["name"], len(node["symbols"]))
    elif kind == "fixed":
        walk = _fixed(node["size"])
    else:
        raise ValueError(f"these schemas have no {kind}")
    named[node["name"]] = walk
    return walk


def _record(fields: Sequence[Walk]) -> Walk:
    def walk(record: bytes, at: int) -> int:
        for field in fields:
            at = field(record, at)
        return at

    return walk


def _union(branches: Sequence[Any], walks: Sequence[Walk]) -> Walk:
    optional = "null" in branches

    def walk(record: bytes, at: int) -> int:
        position, at = _number(record, at)
        if 0 <= position < len(walks):
            return walks[position](record, at)
        if optional or position < 0:
            raise UndecodableRecord("union branch out of range")
        raise UnknownSchema(f"event type {position} of {len(walks)}")

    return walk


def _enum(name: str, symbols: int) -> Walk:
    def walk(record: bytes, at: int) -> int:
        position, at = _number(record, at)
        if position < 0:
            raise UndecodableRecord("enum symbol out of range")
        if position >= symbols:
            raise UnknownSchema(f"symbol {position} of {symbols} of enum {name}")
        return at

    return walk


def _array(item: Walk) -> Walk:
    def walk(record: bytes, at: int) -> int:
        count, at = _number(record, at)
        while count:
            if count < 0:
                count = -count
                at = _long(record, at)
            for _ in range(count):
                at = item(record, at)
            count, at = _number(record, at)
        return at

    return walk


def _fixed(size: int) -> Walk:
    def walk(record: bytes, at: int) -> int:
        return _inside(record, at, size)

    return walk


def _inside(record: bytes, at: int, size: int) -> int:
    """Return the end of `size` bytes; every item of an array passes by here."""
    if size < 0 or at + size > len(record):
        raise UndecodableRecord("cut, or a length reaches past the end")
    return at + size


def _number(record: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        at = _inside(record, at, 1)
        byte = record[at - 1]
        value |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            break
        shift += 7
        if shift > _LONGEST:
            raise UndecodableRecord("a number has more than 64 bits")
    if value >> 64:
        raise UndecodableRecord("a number has more than 64 bits")
    return (value >> 1) ^ -(value & 1), at


def _long(record: bytes, at: int) -> int:
    return _number(record, at)[1]


def _int(record: bytes, at: int) -> int:
    value, at = _number(record, at)
    if not -(2**31) <= value < 2**31:
        raise UndecodableRecord("an int has more than 32 bits")
    return at


def _content(record: bytes, at: int) -> int:
    size, at = _number(record, at)
    return _inside(record, at, size)


def _boolean(record: bytes, at: int) -> int:
    at = _inside(record, at, 1)
    if record[at - 1] > 1:
        raise UndecodableRecord("a boolean is neither 0 nor 1")
    return at


def _null(record: bytes, at: int) -> int:
    return at


_PRIMITIVES: Final[dict[str, Walk]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "double": _fixed(_DOUBLE_BYTES),
    "bytes": _content,
    "string": _content,
}
