from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from cachemind.adapters.key_verify import OpensslCheck
from cachemind.core.ecdsa_signature import is_raw_low_s, raw_of_der, with_low_s
from cachemind.errors import InvalidEvent
from cachemind.ports import SignatureCheck
from tests.unit.test_ecdsa_signature import KEY

CHECK: SignatureCheck = OpensslCheck()
WYCHEPROOF = Path(__file__).parents[1] / "vectors" / "wycheproof.json"
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    key: bytes
    message: bytes
    signature: bytes
    valid: bool


def wycheproof(kind: str) -> Iterator[Case]:
    for group in json.loads(WYCHEPROOF.read_text())[kind]:
        for number, comment, message, signature, result in group["cases"]:
            yield Case(
                name=f"{kind} {number}: {comment}",
                key=bytes.fromhex(group["key"]),
                message=bytes.fromhex(message),
                signature=bytes.fromhex(signature),
                valid=result == "valid",
            )


def spki(key: ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


@pytest.mark.parametrize(
    ("message", "signature"),
    [
        pytest.param(
            b"sample",
            "EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716"
            "F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8",
            id="sample",
        ),
        pytest.param(
            b"test",
            "F1ABB023518351CD71D881567B1EA663ED3EFCF6C5132B354F28D3B0B7D38367"
            "019F4113742A2B14BD25926B49C649155F267E60D3814B4C0CC84250E46F0083",
            id="test",
        ),
    ],
)
def test_the_signatures_of_rfc_6979_hold_once_s_is_low(
    message: bytes, signature: str
) -> None:
    raw = bytes.fromhex(signature)
    assert CHECK.ecdsa(KEY, message, raw) == is_raw_low_s(raw)
    assert CHECK.ecdsa(KEY, message, with_low_s(raw))
    assert not CHECK.ecdsa(KEY, message + b".", with_low_s(raw))


def test_wycheproofs_raw_signatures_hold_where_they_are_valid_with_a_low_s() -> None:
    cases = list(wycheproof("ecdsa-raw"))
    assert len(cases) == 262
    for case in cases:
        holds = CHECK.ecdsa(case.key, case.message, case.signature)
        assert holds == (case.valid and is_raw_low_s(case.signature)), case.name
        if case.valid:
            low = with_low_s(case.signature)
            assert CHECK.ecdsa(case.key, case.message, low), case.name


def test_wycheproofs_der_signatures_hold_where_they_are_valid() -> None:
    cases = list(wycheproof("ecdsa-der"))
    assert len(cases) == 484
    for case in cases:
        try:
            raw = raw_of_der(case.signature)
        except InvalidEvent:
            assert not case.valid, case.name
        else:
            assert CHECK.ecdsa(case.key, case.message, raw) == case.valid, case.name


def test_wycheproofs_ed25519_signatures_hold_where_they_are_valid() -> None:
    cases = list(wycheproof("ed25519"))
    assert len(cases) == 151
    for case in cases:
        holds = CHECK.ed25519(case.key, case.message, case.signature)
        assert holds == case.valid, case.name


@given(signature=st.binary(max_size=100), message=st.binary(max_size=50))
def test_bytes_at_random_are_no_signature_and_no_error(
    signature: bytes, message: bytes
) -> None:
    assert not CHECK.ecdsa(KEY, message, signature)
    assert not CHECK.ed25519(ED25519, message, signature)


ED25519 = spki(ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key())
COMPRESSED = bytes.fromhex(
    "3039301306072a8648ce3d020106082a8648ce3d030107032200"
    "0360fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6"
)
RSA = (
    rsa.RSAPublicNumbers(65537, (1 << 2047) + 1)
    .public_key()
    .public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
)


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x30\x59", id="cut"),
        pytest.param(KEY[:-1] + b"\0", id="not-on-the-curve"),
        pytest.param(KEY + b"\0", id="bytes-behind-it"),
        pytest.param(COMPRESSED, id="another-encoding-of-a-key-that-would-do"),
        pytest.param(RSA, id="rsa"),
        pytest.param(
            spki(ec.derive_private_key(7, ec.SECP384R1()).public_key()), id="p-384"
        ),
        pytest.param(
            spki(ec.derive_private_key(7, ec.SECP256K1()).public_key()), id="secp256k1"
        ),
        pytest.param(ED25519, id="ed25519"),
    ],
)
def test_a_key_that_is_not_p_256_in_its_one_encoding_is_an_invalid_event(
    key: bytes,
) -> None:
    with pytest.raises(InvalidEvent) as caught:
        CHECK.ecdsa(key, b"", bytes(64))
    assert caught.value.field == "public_key"


def test_a_p_256_key_checks_no_ed25519_signature() -> None:
    with pytest.raises(InvalidEvent, match="public_key: is not an Ed25519 key"):
        CHECK.ed25519(KEY, b"", bytes(64))
    with pytest.raises(InvalidEvent, match="public_key: is not a public key"):
        CHECK.ed25519(b"", b"", bytes(64))
