"""Keys in an HSM: SoftHSM2, by its real library."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from cachemind.adapters.key_pkcs11 import Pkcs11Key
from cachemind.adapters.key_verify import OpensslCheck
from cachemind.adapters.wrap_pkcs11 import Pkcs11Wrapper
from cachemind.core.pkcs11_uri import parse_pkcs11_uri
from cachemind.errors import KeyRefused, KeyUnavailable
from cachemind.ports import KeyWrapper, SigningKey
from tests.contracts.key_wrapper_contract import KeyWrapperContract
from tests.contracts.signing_key_contract import SigningKeyContract
from tests.tokens import LABEL, PIN, Token, make_token

CHECK = OpensslCheck()


@pytest.fixture(scope="session")
def session_token(tmp_path_factory: pytest.TempPathFactory) -> Token:
    token = make_token(tmp_path_factory.mktemp("softhsm"))
    token.make_pair("receipt")
    token.make_secret("payload")
    token.make_secret("other")
    return token


@pytest.fixture
def token(session_token: Token) -> Token:
    # No session and no login of the test before.
    session_token.restart()
    return session_token


def key_of(token: Token, label: str = "receipt") -> Pkcs11Key:
    return Pkcs11Key(parse_pkcs11_uri(token.uri(label)), token.access())


def wrapper_of(token: Token, label: str = "payload") -> Pkcs11Wrapper:
    return Pkcs11Wrapper(parse_pkcs11_uri(token.uri(label)), token.access())


class TestPkcs11Key(SigningKeyContract):
    @pytest.fixture
    def key(self, token: Token) -> Iterator[SigningKey]:
        with closing(key_of(token)) as key:
            yield key


class TestPkcs11Wrapper(KeyWrapperContract):
    @pytest.fixture
    def wrapper(self, token: Token) -> Iterator[KeyWrapper]:
        with closing(wrapper_of(token)) as wrapper:
            yield wrapper

    @pytest.fixture
    def other(self, token: Token) -> Iterator[KeyWrapper]:
        with closing(wrapper_of(token, "other")) as wrapper:
            yield wrapper


def holds(key: SigningKey, message: bytes = b"message") -> bool:
    return CHECK.ecdsa(key.public_key, message, key.sign(message).value)


def test_a_key_is_found_by_id_as_by_label(token: Token) -> None:
    by_id = f"pkcs11:token={LABEL};id=%72%65%63%65%69%70%74;type=private"
    with closing(Pkcs11Key(parse_pkcs11_uri(by_id), token.access())) as key:
        assert key.public_key == key_of(token).public_key


def test_a_key_signs_on_after_the_token_was_lost(token: Token) -> None:
    with closing(key_of(token)) as key:
        for _ in range(3):
            token.restart()
            assert holds(key)


def test_two_keys_of_a_token_outlive_each_other(token: Token) -> None:
    """Leaving a session logs the whole process out."""
    token.make_pair("second")
    try:
        first, second = key_of(token), key_of(token, "second")
        first.close()
        assert holds(second)
        third = key_of(token)
        second.close()
        assert holds(third)
        third.close()
    finally:
        token.remove("second")


def test_keys_of_a_token_take_turns_without_logging_in_again(token: Token) -> None:
    asked = []

    def pin() -> str:
        asked.append(1)
        return PIN

    receipt, payload = (token.uri(label) for label in ("receipt", "payload"))
    with (
        closing(Pkcs11Key(parse_pkcs11_uri(receipt), token.access(pin))) as key,
        closing(Pkcs11Wrapper(parse_pkcs11_uri(payload), token.access(pin))) as wrapper,
    ):
        for _ in range(5):
            assert holds(key)
            assert wrapper.unwrap(wrapper.wrap(b"secret", b""), b"") == b"secret"
    assert len(asked) == 2


def test_threads_sign_on_while_the_token_is_lost_again_and_again(token: Token) -> None:
    with closing(key_of(token)) as key, closing(wrapper_of(token)) as wrapper:

        def work(number: int) -> bool:
            message = b"message %d" % number
            if number % 2:
                return wrapper.unwrap(wrapper.wrap(message, b""), b"") == message
            return holds(key, message)

        with ThreadPoolExecutor(4) as pool:
            for round_ in range(3):
                done = pool.map(work, range(round_ * 40, round_ * 40 + 40))
                assert all(done)
                token.restart()


def test_a_token_that_is_gone_is_unavailable_and_then_not(token: Token) -> None:
    aside = token.folder.with_name("aside")
    with closing(key_of(token)) as key:
        token.folder.rename(aside)
        try:
            with pytest.raises(KeyUnavailable, match=f"pkcs11:{LABEL}/receipt"):
                key.sign(b"message")
        finally:
            aside.rename(token.folder)
        assert holds(key)


def test_a_key_that_was_deleted_is_refused(token: Token) -> None:
    token.make_pair("doomed")
    with closing(key_of(token, "doomed")) as key:
        token.remove("doomed")
        with pytest.raises(KeyRefused, match=r"NoSuchKey: .*no such private key"):
            key.sign(b"message")


def test_another_key_under_the_same_name_is_refused(token: Token) -> None:
    token.make_pair("changed")
    try:
        with closing(key_of(token, "changed")) as key:
            token.remove("changed")
            token.make_pair("changed")
            token.restart()
            with pytest.raises(KeyRefused, match="another key than it was"):
                key.sign(b"message")
    finally:
        token.remove("changed")


def test_a_wrong_pin_is_tried_once(token: Token) -> None:
    asked = []

    def pin() -> str:
        asked.append(1)
        return "0000-wr0ng"

    uri = parse_pkcs11_uri(token.uri("receipt"))
    with pytest.raises(KeyRefused, match="refused the PIN: PinIncorrect") as caught:
        Pkcs11Key(uri, token.access(pin))
    assert len(asked) == 1
    assert "wr0ng" not in repr(caught.value)


def test_a_pin_that_is_refused_later_is_tried_once_too(token: Token) -> None:
    pins = iter([PIN, "0000-wr0ng"])
    uri = parse_pkcs11_uri(token.uri("receipt"))
    with closing(Pkcs11Key(uri, token.access(lambda: next(pins)))) as key:
        token.restart()
        for _ in range(5):
            with pytest.raises(KeyRefused, match="refused the PIN"):
                key.sign(b"message")


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        pytest.param(
            lambda token: token.make_pair("bad", curve="secp384r1"),
            "P-256",
            id="p-384",
        ),
        pytest.param(
            lambda token: token.make_pair("bad", extractable=True),
            "must not be extractable",
            id="extractable",
        ),
        pytest.param(
            lambda token: token.make_pair("bad", public=False),
            "no such public key",
            id="no-public-half",
        ),
        pytest.param(
            lambda token: [token.make_pair("bad"), token.make_pair("bad")],
            "2 of kind private key",
            id="two-of-the-name",
        ),
        pytest.param(lambda token: None, "no such private key", id="none"),
    ],
)
def test_a_key_that_will_not_do_is_refused(
    token: Token, make: object, problem: str
) -> None:
    assert callable(make)
    make(token)
    try:
        with pytest.raises(KeyRefused, match=problem):
            key_of(token, "bad")
    finally:
        token.remove("bad")


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        pytest.param(
            lambda token: token.make_secret("bad", bits=128),
            "AES key of 256 bits",
            id="128-bits",
        ),
        pytest.param(
            lambda token: token.make_secret("bad", extractable=True),
            "must not be extractable",
            id="extractable",
        ),
        pytest.param(lambda token: None, "no such secret key", id="none"),
    ],
)
def test_a_wrapping_key_that_will_not_do_is_refused(
    token: Token, make: object, problem: str
) -> None:
    assert callable(make)
    make(token)
    try:
        with pytest.raises(KeyRefused, match=problem):
            wrapper_of(token, "bad")
    finally:
        token.remove("bad")


def test_a_token_that_was_never_there_is_unavailable(token: Token) -> None:
    uri = parse_pkcs11_uri("pkcs11:token=nowhere;object=receipt")
    with pytest.raises(KeyUnavailable, match="TokenNotPresent"):
        Pkcs11Key(uri, token.access())
    with closing(key_of(token)) as key:
        assert holds(key)


@pytest.mark.parametrize("module", ["/no/such/library.so", "/etc/passwd"])
def test_what_is_no_library_is_refused(token: Token, module: str) -> None:
    access = token.access()
    access = type(access)(module=Path(module), pin=access.pin)
    with pytest.raises(KeyRefused, match=module):
        Pkcs11Key(parse_pkcs11_uri(token.uri("receipt")), access)


def test_a_wrapper_keeps_its_name_when_it_is_found_by_id(token: Token) -> None:
    by_id = f"pkcs11:token={LABEL};id=%70%61%79%6c%6f%61%64"
    with closing(wrapper_of(token)) as one:
        wrapped = one.wrap(b"secret", b"context")
        name = one.wrapper_id
    with closing(Pkcs11Wrapper(parse_pkcs11_uri(by_id), token.access())) as again:
        assert again.wrapper_id == name
        assert again.unwrap(wrapped, b"context") == b"secret"
        assert Pkcs11Wrapper(parse_pkcs11_uri(name), token.access()).wrapper_id == name
