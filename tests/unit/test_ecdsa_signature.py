from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.ecdsa_signature import (
    ORDER,
    der_of_raw,
    is_raw_low_s,
    raw_of_der,
    raw_of_numbers,
    with_low_s,
)
from cachemind.core.public_keys import der_of_pem, key_id_of, pem_of
from cachemind.errors import InvalidEvent

HALF = ORDER // 2
KEY = bytes.fromhex(
    "3059301306072a8648ce3d020106082a8648ce3d03010703420004"
    "60fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6"
    "7903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299"
)
"""The public key of RFC 6979 A.2.5."""
PEM = """\
-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEYP7UuiVanTHJYet0xjVtaMBJuJI7
Yfps5mliLmDyn7Z5A/4QCLi8maQa6elWKLxk8vGyDC1+n1F3o8KU1EYimQ==
-----END PUBLIC KEY-----
"""

numbers = st.one_of(
    st.integers(1, ORDER - 1),
    st.integers(0, 31).map(lambda byte: 1 << (8 * byte + 7)),
    st.integers(1, 300),
    st.integers(1, 300).map(lambda less: ORDER - less),
)


def raw(r: int, s: int) -> bytes:
    return r.to_bytes(32) + s.to_bytes(32)


@given(r=numbers, s=numbers)
def test_der_and_back_keeps_r_and_makes_s_low(r: int, s: int) -> None:
    der = encode_dss_signature(r, s)
    assert der_of_raw(raw(r, s)) == der
    assert raw_of_der(der) == raw(r, min(s, ORDER - s)) == with_low_s(raw(r, s))
    assert raw_of_numbers(r, s) == raw_of_der(der)
    assert is_raw_low_s(raw_of_der(der))
    assert is_raw_low_s(raw(r, s)) == (s <= HALF)


@pytest.mark.parametrize(
    ("r", "s"), [(0, 1), (1, 0), (ORDER, 1), (1, ORDER), (-1, 1), (1, 1 << 256)]
)
def test_numbers_out_of_range_make_no_signature(r: int, s: int) -> None:
    with pytest.raises(InvalidEvent):
        raw_of_numbers(r, s)


@st.composite
def nearly_der(draw: st.DrawFn) -> bytes:
    """Draw a signature in DER with one byte changed, put in or left out."""
    der = encode_dss_signature(draw(numbers), draw(numbers))
    at = draw(st.integers(0, len(der)))
    return der[:at] + draw(st.binary(max_size=1)) + der[at + draw(st.integers(0, 1)) :]


@given(st.one_of(st.binary(max_size=80), nearly_der()))
def test_bytes_are_der_that_comes_back_or_an_invalid_event(content: bytes) -> None:
    try:
        found = raw_of_der(content)
    except InvalidEvent:
        return
    assert is_raw_low_s(found)
    assert content == encode_dss_signature(*decode_dss_signature(content))


@pytest.mark.parametrize(
    ("der", "problem"),
    [
        pytest.param("", "not a DER sequence", id="nothing"),
        pytest.param("30", "not a DER sequence", id="no-length"),
        pytest.param("3107020101020101", "not a DER sequence", id="a-set"),
        pytest.param("308106020101020101", "not a DER sequence", id="long-length"),
        pytest.param("3006020101", "ends early", id="cut"),
        pytest.param("3006020101020201", "ends early", id="number-cut"),
        pytest.param("300602010102010100", "after its end", id="behind-it"),
        pytest.param("3008020101020101" + "0500", "after its end", id="third-element"),
        pytest.param("3007020101" + "02020001", "needless zeros", id="padded"),
        pytest.param("3006020101" + "020100", "out of range", id="zero"),
        pytest.param("3006020101" + "0201ff", "out of range", id="negative"),
        pytest.param("3005020101" + "0200", "out of range", id="empty-number"),
    ],
)
def test_what_is_not_the_one_encoding_is_refused(der: str, problem: str) -> None:
    with pytest.raises(InvalidEvent, match=problem):
        raw_of_der(bytes.fromhex(der))


@pytest.mark.parametrize(
    "outside",
    [
        pytest.param(raw(0, 1), id="r-is-zero"),
        pytest.param(raw(1, 0), id="s-is-zero"),
        pytest.param(raw(ORDER, 1), id="r-is-the-order"),
        pytest.param(raw(1, ORDER), id="s-is-the-order"),
        pytest.param(bytes(63), id="short"),
        pytest.param(raw(1, 1) + b"\0", id="long"),
    ],
)
def test_numbers_out_of_range_are_no_signature(outside: bytes) -> None:
    assert not is_raw_low_s(outside)
    with pytest.raises(InvalidEvent, match="signature"):
        der_of_raw(outside)
    with pytest.raises(InvalidEvent, match="signature"):
        with_low_s(outside)


def test_half_of_the_order_is_the_highest_low_s() -> None:
    assert is_raw_low_s(raw(1, HALF))
    assert not is_raw_low_s(raw(1, HALF + 1))
    assert with_low_s(raw(1, HALF + 1)) == raw(1, HALF)


def test_a_key_is_named_by_the_hash_of_its_der() -> None:
    assert key_id_of(KEY) == "5a7a78cca4a0f420"


def test_a_public_key_goes_to_text_and_back() -> None:
    assert pem_of(KEY) == PEM
    assert der_of_pem(PEM) == KEY
    assert der_of_pem("\n" + PEM.replace("\n", "\r\n")) == KEY


@given(st.binary(min_size=1, max_size=200))
def test_any_key_goes_to_text_and_back(key: bytes) -> None:
    assert der_of_pem(pem_of(key)) == key


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param(PEM + PEM, id="two"),
        pytest.param(PEM.replace("PUBLIC", "PRIVATE"), id="another-label"),
        pytest.param(PEM.replace("MFk", "MF"), id="a-character-lost"),
        pytest.param(PEM.replace("MFk", "MF!"), id="not-base64"),
        pytest.param("a" + PEM, id="words-before"),
    ],
)
def test_text_that_is_no_public_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidEvent, match="public_key"):
        der_of_pem(text)
