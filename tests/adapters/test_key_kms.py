"""Keys in AWS KMS: moto's server by real HTTP; and a server that only fails."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import pytest

from cachemind.adapters.key_kms import KmsKey
from cachemind.adapters.key_verify import OpensslCheck
from cachemind.adapters.kms_calls import KmsCalls
from cachemind.adapters.wrap_kms import KmsWrapper
from cachemind.core.kms_uri import KmsUri, parse_kms_uri
from cachemind.errors import InvalidSetting, KeyRefused, KeyUnavailable
from cachemind.ports import KeyWrapper, SigningKey
from cachemind_services.bootstrap.keys import open_key_wrapper, open_signing_key
from cachemind_services.settings import load
from tests.contracts.key_wrapper_contract import KeyWrapperContract
from tests.contracts.signing_key_contract import SigningKeyContract
from tests.kms import REGION, moto_kms, new_key, set_credentials

ARN = "arn:aws:kms:eu-central-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    set_credentials(monkeypatch)


@pytest.fixture(scope="session")
def kms() -> Iterator[str]:
    with moto_kms() as url:
        yield url


MakeKey = Callable[[str, str], str]


@pytest.fixture
def make_key(kms: str) -> MakeKey:
    """Makes a key of a kind for a use; returns its URI."""
    return lambda spec, usage: f"aws-kms:{new_key(kms, spec, usage)}?endpoint={kms}"


def calls_of(uri: str) -> KmsCalls:
    return KmsCalls(parse_kms_uri(uri))


class TestKmsKey(SigningKeyContract):
    MANY = 12

    @pytest.fixture
    def key(self, make_key: MakeKey) -> Iterator[SigningKey]:
        key = KmsKey(calls_of(make_key("ECC_NIST_P256", "SIGN_VERIFY")))
        yield key
        key.close()


class TestKmsWrapper(KeyWrapperContract):
    @pytest.fixture
    def wrapper(self, make_key: MakeKey) -> Iterator[KeyWrapper]:
        wrapper = KmsWrapper(calls_of(make_key("SYMMETRIC_DEFAULT", "ENCRYPT_DECRYPT")))
        yield wrapper
        wrapper.close()

    @pytest.fixture
    def other(self, make_key: MakeKey) -> Iterator[KeyWrapper]:
        wrapper = KmsWrapper(calls_of(make_key("SYMMETRIC_DEFAULT", "ENCRYPT_DECRYPT")))
        yield wrapper
        wrapper.close()


def test_keys_are_opened_by_uri(make_key: MakeKey) -> None:
    settings = load({})
    key = open_signing_key(make_key("ECC_NIST_P256", "SIGN_VERIFY"), settings)
    assert OpensslCheck().ecdsa(key.public_key, b"m", key.sign(b"m").value)
    key.close()
    wrapper = open_key_wrapper(
        make_key("SYMMETRIC_DEFAULT", "ENCRYPT_DECRYPT"), settings
    )
    assert wrapper.unwrap(wrapper.wrap(b"s", b"c"), b"c") == b"s"
    wrapper.close()


@pytest.mark.parametrize(
    ("spec", "usage"),
    [
        pytest.param("ECC_NIST_P384", "SIGN_VERIFY", id="p-384"),
        pytest.param("ECC_SECG_P256K1", "SIGN_VERIFY", id="secp256k1"),
        pytest.param("RSA_2048", "SIGN_VERIFY", id="rsa"),
    ],
)
def test_a_key_of_another_kind_is_refused(
    make_key: MakeKey, spec: str, usage: str
) -> None:
    with pytest.raises(KeyRefused):
        KmsKey(calls_of(make_key(spec, usage)))


def test_a_key_that_is_not_there_is_refused(kms: str) -> None:
    with pytest.raises(KeyRefused, match="NotFoundException"):
        KmsKey(calls_of(f"aws-kms:{ARN}?endpoint={kms}"))


class Failing(ThreadingHTTPServer):
    """Answers every request with one error of KMS, or not at all."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.answer = 500, b"{}"
        self.requests = 0
        self.hanging = Event()
        self.released = Event()

    @property
    def uri(self) -> KmsUri:
        host, port = self.server_address[:2]
        return parse_kms_uri(f"aws-kms:{ARN}?endpoint=http://{host!s}:{port}")

    def fails(self, status: int, code: str) -> None:
        self.status = status
        self.answer = json.dumps({"__type": code, "message": "because"}).encode()


class _Handler(BaseHTTPRequestHandler):
    server: Failing

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests += 1
        if self.server.hanging.is_set():
            self.server.released.wait(30)
            return
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(self.server.answer)))
        self.end_headers()
        self.wfile.write(self.server.answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # its name
        """Keep the test's output clean."""


@pytest.fixture
def failing() -> Iterator[Failing]:
    server = Failing()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("status", "code"),
    [
        pytest.param(400, "ThrottlingException", id="throttled"),
        pytest.param(400, "LimitExceededException", id="limit"),
        pytest.param(500, "KeyUnavailableException", id="key-unavailable"),
        pytest.param(503, "DependencyTimeoutException", id="dependency"),
        pytest.param(500, "KMSInternalException", id="internal"),
        pytest.param(502, "whatever", id="no-kms-at-all"),
    ],
)
def test_what_may_pass_is_tried_again_and_then_unavailable(
    failing: Failing, status: int, code: str
) -> None:
    failing.fails(status, code)
    calls = KmsCalls(failing.uri, attempts=2)
    with pytest.raises(KeyUnavailable, match=f"{code}: because"):
        KmsKey(calls)
    assert failing.requests == 2
    calls.close()


@pytest.mark.parametrize(
    "code",
    [
        "AccessDeniedException",
        "DisabledException",
        "ExpiredTokenException",
        "IncorrectKeyException",
        "InvalidCiphertextException",
        "InvalidGrantTokenException",
        "InvalidKeyUsageException",
        "KMSInvalidStateException",
        "NotFoundException",
        "UnrecognizedClientException",
        "ValidationException",
    ],
)
def test_what_will_not_pass_is_refused_at_once(failing: Failing, code: str) -> None:
    failing.fails(400, code)
    calls = KmsCalls(failing.uri)
    for work in (
        lambda: KmsKey(calls),
        lambda: KmsWrapper(calls).wrap(b"s", b""),
        lambda: KmsWrapper(calls).unwrap(b"s", b""),
    ):
        with pytest.raises(KeyRefused, match=f"{code}: because") as caught:
            work()
        assert caught.value.key == ARN
    assert failing.requests == 3
    calls.close()


def test_kms_that_hangs_is_given_up_in_time(failing: Failing) -> None:
    failing.hanging.set()
    calls = KmsCalls(failing.uri, answer_s=0.2, attempts=1)
    start = time.monotonic()
    with pytest.raises(KeyUnavailable, match="ReadTimeoutError"):
        calls.ask("get_public_key")
    assert time.monotonic() - start < 10
    calls.close()


def test_kms_that_is_not_there_is_unavailable() -> None:
    with Failing() as gone:
        uri = gone.uri
    calls = KmsCalls(uri, attempts=1)
    with pytest.raises(KeyUnavailable, match="EndpointConnectionError"):
        calls.ask("get_public_key")
    calls.close()


def test_without_credentials_it_says_so(
    failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/no/such")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/no/such")
    calls = KmsCalls(failing.uri)
    with pytest.raises(KeyRefused, match="Unable to locate credentials"):
        calls.ask("get_public_key")
    assert failing.requests == 0
    calls.close()


@pytest.mark.parametrize("size", [0, 4_097])
def test_a_secret_of_a_size_that_kms_does_not_take_is_refused(
    failing: Failing, size: int
) -> None:
    calls = KmsCalls(failing.uri)
    with pytest.raises(KeyRefused, match="wraps 1 to 4096 bytes"):
        KmsWrapper(calls).wrap(bytes(size), b"")
    assert failing.requests == 0
    calls.close()


def test_a_uri_is_read() -> None:
    assert parse_kms_uri(f"aws-kms:{ARN}?endpoint=http%3A//127.0.0.1:1") == KmsUri(
        arn=ARN, region=REGION, endpoint="http://127.0.0.1:1"
    )
    assert parse_kms_uri(f"aws-kms:{ARN}").endpoint == ""


@pytest.mark.parametrize(
    "uri",
    [
        "aws-kms:",
        "aws-kms:1234abcd-12ab-34cd-56ef-1234567890ab",
        "aws-kms:arn:aws:kms:eu-central-1:123456789012:alias/audit",
        "aws-kms:arn:aws:s3:eu-central-1:123456789012:key/1",
        f"kms:{ARN}",
        f"aws-kms:{ARN}?region=x",
        f"aws-kms:{ARN}?endpoint=",
        f"aws-kms:{ARN}?endpoint=ftp://x",
        f"aws-kms:{ARN}?endpoint=http://[",
    ],
)
def test_what_is_no_uri_of_a_key_is_refused(uri: str) -> None:
    with pytest.raises(InvalidSetting, match="AWS KMS URI"):
        parse_kms_uri(uri)


def test_without_the_extra_the_uri_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "cachemind.adapters.kms_calls", raising=False)
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    openers: list[Any] = [open_signing_key, open_key_wrapper]
    for opener in openers:
        with pytest.raises(InvalidSetting, match=r"cachemind\[aws\]"):
            opener(f"aws-kms:{ARN}", load({}))
