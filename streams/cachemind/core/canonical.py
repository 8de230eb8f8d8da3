"""One byte string for every way of writing the same JSON value."""

from __future__ import annotations

import json
from typing import Final

import orjson

from cachemind.errors import InvalidRequest

_WIDEST_INT: Final = 1 << 63
_WORDS: Final = range(-_WIDEST_INT, 2 * _WIDEST_INT)


def canonical(value: object) -> bytes:
    """Return `value` as JSON with sorted keys, no white space, canonical numbers.

    A whole number within 63 bits is written as its digits (1.0 and 1e0 as 1, -0.0
    as 0). What JSON cannot hold, such as NaN, must not be in `value`.
    Raises: `InvalidRequest` naming `body` where it is nested past 254 levels.
    """
    try:
        written = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError as error:
        raise InvalidRequest("body", "is nested too deeply") from error
    # Only a number with ".0" or "e+" in it may not be canonical yet; the same inside
    # of text costs a second pass and changes nothing.
    if b".0" in written or b"e+" in written:
        return orjson.dumps(_whole(value), option=orjson.OPT_SORT_KEYS)
    return written


def ambiguous(body: bytes) -> bool:
    """Return whether two JSON readers may understand `body` differently.

    True for a name given twice in one object, at any depth (readers keep the first
    or the last), for integers past 64 bits, which many read as the float nearest,
    for floats of that size, which would share their key, and for what is not JSON.
    Source: RFC 8259 sections 4 and 6.
    """
    try:
        json.loads(
            body,
            object_pairs_hook=_unique,
            parse_int=_word,
            parse_float=_exact,
            parse_constant=_refuse,
        )
    except (ValueError, RecursionError):
        return True
    return False


def _whole(value: object) -> object:
    kind = type(value)
    if kind is float:
        return _canonical_number(value)
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {name: _whole(item) for name, item in value.items()}
    return value


def _canonical_number(value: object) -> object:
    if isinstance(value, float) and value.is_integer() and abs(value) < _WIDEST_INT:
        return int(value)
    return value


def _unique(pairs: list[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a name occurs twice")


def _word(digits: str) -> None:
    if int(digits) not in _WORDS:
        raise ValueError("an integer is past 64 bits")


def _exact(written: str) -> None:
    if not abs(float(written)) < _WIDEST_INT:
        raise ValueError("a float is as large as integers that are read as floats")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
