from __future__ import annotations

import ssl

import faust
import pytest

from cachemind.agents.faust_settings import broker_access
from cachemind.errors import InvalidSetting

PLAIN = {"bootstrap.servers": "localhost:9092"}
SASL = {
    **PLAIN,
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "u",
    "sasl.password": "secret",
}


@pytest.mark.parametrize(
    ("servers", "urls"),
    [
        ("a:1", ["aiokafka://a:1"]),
        ("a:1, b:2", ["aiokafka://a:1", "aiokafka://b:2"]),
        ("a", ["aiokafka://a:9092"]),
        ("[::1]:9094", ["aiokafka://[::1]:9094"]),
    ],
)
def test_servers_become_urls(servers: str, urls: list[str]) -> None:
    access = broker_access({"bootstrap.servers": servers})
    assert [str(url) for url in access.urls] == urls
    assert access.credentials is None


def test_sasl_is_passed_on_without_being_shown() -> None:
    access = broker_access(SASL)
    credentials = access.credentials
    assert isinstance(credentials, faust.SASLCredentials)
    assert credentials.mechanism.value == "SCRAM-SHA-512"
    assert (credentials.username, credentials.password) == ("u", "secret")
    assert credentials.protocol.value == "SASL_PLAINTEXT"
    assert "secret" not in repr(access)


def test_sasl_over_tls_verifies_the_broker() -> None:
    access = broker_access({**SASL, "security.protocol": "sasl_ssl"})
    assert isinstance(access.credentials, faust.SASLCredentials)
    context = access.credentials.ssl_context
    assert isinstance(context, ssl.SSLContext)
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert access.credentials.protocol.value == "SASL_SSL"


def test_verification_can_be_turned_off_by_name_only() -> None:
    tls = {**PLAIN, "security.protocol": "ssl"}
    off = {"ssl.endpoint.identification.algorithm": "none"}
    credentials = broker_access({**tls, **off}).credentials
    assert isinstance(credentials, faust.SSLCredentials)
    assert not credentials.context.check_hostname
    assert credentials.context.verify_mode is ssl.CERT_REQUIRED
    blind = {"enable.ssl.certificate.verification": "false"}
    credentials = broker_access({**tls, **blind}).credentials
    assert isinstance(credentials, faust.SSLCredentials)
    assert credentials.context.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "bootstrap.servers"),
        ({"bootstrap.servers": "a:b"}, "bootstrap.servers"),
        ({"bootstrap.servers": "a:99999"}, "bootstrap.servers"),
        ({"bootstrap.servers": "u:p@a:1"}, "bootstrap.servers"),
        ({**PLAIN, "security.protocol": "tls"}, "security.protocol"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER"}, "sasl.mechanism"),
        ({**SASL, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism"),
        ({**SASL, "sasl.username": ""}, "sasl.username"),
        ({**SASL, "sasl.oauthbearer.config": "x"}, "sasl.oauthbearer.config"),
        ({**PLAIN, "ssl.keystore.location": "x"}, "ssl.keystore.location"),
        ({**PLAIN, "ssl.crl.location": "x"}, "ssl.crl.location"),
        (
            {**PLAIN, "security.protocol": "ssl", "ssl.ca.location": "/no/such/file"},
            "ssl.ca.location",
        ),
        (
            {**PLAIN, "security.protocol": "ssl", "ssl.key.location": "/no/such/file"},
            "ssl.certificate.location",
        ),
        (
            {**PLAIN, "security.protocol": "ssl", "ssl.cipher.suites": "none-such"},
            "ssl.cipher.suites",
        ),
    ],
)
def test_what_faust_cannot_do_is_refused_by_name(
    settings: dict[str, str], name: str
) -> None:
    with pytest.raises(InvalidSetting) as refused:
        broker_access(settings)
    assert refused.value.name == name
    assert "secret" not in str(refused.value)


def test_settings_that_only_tune_librdkafka_do_not_matter() -> None:
    tuned = {**PLAIN, "linger.ms": "5", "socket.nagle.disable": "true"}
    assert broker_access(tuned) == broker_access(PLAIN)
