"""The two encodings of an ECDSA P-256 signature, and the one of its two values kept.

Providers give ASN.1 DER; a receipt holds raw r || s. Of the two values of s that
verify, only the low one counts, so that nobody can change a signature that holds
into another one that holds.
"""

from __future__ import annotations

from typing import Final

from cachemind.errors import InvalidEvent
from cachemind.receipts import SIGNATURE_BYTES

ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""The number of points of P-256. Source: FIPS 186-5, SP 800-186 section 3.2.1.3."""

_HALF_ORDER: Final = ORDER // 2
_NUMBER_BYTES: Final = SIGNATURE_BYTES // 2
_SEQUENCE: Final = 0x30
_INTEGER: Final = 0x02
_LONG_FORM: Final = 0x80


def raw_of_der(der: bytes) -> bytes:
    """Return r || s, 64 bytes with a low s, of a signature in DER.

    Raises: `InvalidEvent` where `der` is not the one DER encoding of two numbers
    from 1 to the order less 1.
    """
    body, rest = _element(der, _SEQUENCE)
    r, after_r = _element(body, _INTEGER)
    s, after_s = _element(after_r, _INTEGER)
    if rest or after_s:
        raise _malformed("has bytes after its end")
    return _join(_number(r), _number(s))


def raw_of_numbers(r: int, s: int) -> bytes:
    """Return r || s, 64 bytes with a low s.

    Raises: `InvalidEvent` where a number is not from 1 to the order less 1.
    """
    if not (0 < r < ORDER and 0 < s < ORDER):
        raise _malformed("has a number out of range")
    return _join(r, s)


def der_of_raw(raw: bytes) -> bytes:
    """Return the DER encoding of r || s, whether s is low or not.

    Raises: `InvalidEvent` where `raw` is not 64 bytes or a number is out of range.
    """
    r, s = _split(raw)
    body = _integer(r) + _integer(s)
    return bytes((_SEQUENCE, len(body))) + body


def with_low_s(raw: bytes) -> bytes:
    """Return the signature of the same meaning whose s is the low one.

    Raises: `InvalidEvent` where `raw` is not 64 bytes or a number is out of range.
    """
    return _join(*_split(raw))


def is_raw_low_s(raw: bytes) -> bool:
    """Return whether `raw` is 64 bytes, both numbers in range, and s the low one."""
    if len(raw) != SIGNATURE_BYTES:
        return False
    r = int.from_bytes(raw[:_NUMBER_BYTES])
    s = int.from_bytes(raw[_NUMBER_BYTES:])
    return 0 < r < ORDER and 0 < s <= _HALF_ORDER


def _split(raw: bytes) -> tuple[int, int]:
    if len(raw) != SIGNATURE_BYTES:
        raise _malformed(f"must be {SIGNATURE_BYTES} bytes, found {len(raw)}")
    numbers = (
        int.from_bytes(raw[:_NUMBER_BYTES]),
        int.from_bytes(raw[_NUMBER_BYTES:]),
    )
    if not all(0 < number < ORDER for number in numbers):
        raise _malformed("has a number out of range")
    return numbers


def _join(r: int, s: int) -> bytes:
    low = min(s, ORDER - s)
    return r.to_bytes(_NUMBER_BYTES) + low.to_bytes(_NUMBER_BYTES)


def _element(encoded: bytes, tag: int) -> tuple[bytes, bytes]:
    """Return an element's content and what is behind it.

    Only the short form of a length: no signature of P-256 needs 128 bytes.
    """
    if len(encoded) < 2 or encoded[0] != tag or encoded[1] >= _LONG_FORM:
        raise _malformed("is not a DER sequence of two integers")
    end = 2 + encoded[1]
    if len(encoded) < end:
        raise _malformed("ends early")
    return encoded[2:end], encoded[end:]


def _number(content: bytes) -> int:
    number = int.from_bytes(content, signed=True)
    if not 0 < number < ORDER:
        raise _malformed("has a number out of range")
    if content != _content(number):
        raise _malformed("has a number with needless zeros")
    return number


def _integer(number: int) -> bytes:
    content = _content(number)
    return bytes((_INTEGER, len(content))) + content


def _content(number: int) -> bytes:
    # One bit more than the number has: the sign.
    return number.to_bytes(number.bit_length() // 8 + 1, signed=True)


def _malformed(problem: str) -> InvalidEvent:
    return InvalidEvent("signature", problem)
