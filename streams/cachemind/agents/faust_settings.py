"""librdkafka's settings, said in Faust's words.

The operator configures Kafka once, with librdkafka's names; Faust reaches the same
cluster through aiokafka. What aiokafka cannot do for the security of a connection is
refused, never ignored: a worker must not connect with less than was asked for.
Settings that only tune librdkafka have no meaning here and are left out.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import faust
from faust.types.auth import CredentialsT
from yarl import URL

from cachemind.errors import InvalidSetting

_SECURITY: Final = re.compile(r"(sasl|ssl|security|enable\.ssl)\b")
_KNOWN_SECURITY: Final = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.cipher.suites",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
    }
)
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SERVER: Final = re.compile(r"(\[[0-9a-fA-F:]+\]|[^\[\]:/@\s]+)(?::(\d{1,5}))?\Z")
_DEFAULT_PORT: Final = 9092
_TRUE: Final = ("true", "1")
_FALSE: Final = ("false", "0")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAccess:
    """Where Faust's consumer connects, and as whom. Its repr holds no secret."""

    urls: tuple[URL, ...]
    credentials: CredentialsT | None
    client_id: str


def broker_access(settings: Mapping[str, str]) -> BrokerAccess:
    """Return what Faust needs to reach the cluster that `settings` names.

    Raises: `InvalidSetting` where a value is wrong, or where it asks for security
    that aiokafka does not have.
    """
    _refuse_unknown_security(settings)
    return BrokerAccess(
        urls=_urls(settings.get("bootstrap.servers", "")),
        credentials=_credentials(settings),
        client_id=settings.get("client.id", "cachemind"),
    )


def _refuse_unknown_security(settings: Mapping[str, str]) -> None:
    for name in settings:
        if _SECURITY.match(name) and name not in _KNOWN_SECURITY:
            raise InvalidSetting(
                name, "is not available to the materializer's Faust consumer"
            )


def _urls(servers: str) -> tuple[URL, ...]:
    named = [server.strip() for server in servers.split(",") if server.strip()]
    if not named:
        raise InvalidSetting("bootstrap.servers", "names no broker")
    return tuple(_url(server.removeprefix("PLAINTEXT://")) for server in named)


def _url(server: str) -> URL:
    found = _SERVER.match(server)
    if found is None or int(found[2] or _DEFAULT_PORT) > 65535:
        raise InvalidSetting("bootstrap.servers", "expected HOST:PORT, comma separated")
    return URL(f"aiokafka://{found[1]}:{found[2] or _DEFAULT_PORT}")


def _credentials(settings: Mapping[str, str]) -> CredentialsT | None:
    protocol = settings.get("security.protocol", "plaintext").upper()
    if protocol not in _PROTOCOLS:
        raise InvalidSetting("security.protocol", f"must be one of {_PROTOCOLS}")
    context = _context(settings) if protocol.endswith("SSL") else None
    if protocol.startswith("SASL"):
        return _sasl(settings, context)
    if context is not None:
        return faust.SSLCredentials(context)
    return None


def _sasl(
    settings: Mapping[str, str], context: ssl.SSLContext | None
) -> faust.SASLCredentials:
    mechanism = settings.get("sasl.mechanism") or settings.get("sasl.mechanisms", "")
    if mechanism.upper() not in _MECHANISMS:
        raise InvalidSetting(
            "sasl.mechanism",
            f"must be one of {_MECHANISMS} for the materializer's Faust consumer",
        )
    for name in ("sasl.username", "sasl.password"):
        if not settings.get(name):
            raise InvalidSetting(name, f"is needed for {mechanism.upper()}")
    return faust.SASLCredentials(
        username=settings["sasl.username"],
        password=settings["sasl.password"],
        mechanism=mechanism.upper(),
        ssl_context=context,
    )


def _context(settings: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(
            cafile=settings.get("ssl.ca.location"), cadata=settings.get("ssl.ca.pem")
        )
    except (OSError, ValueError) as error:
        raise InvalidSetting("ssl.ca.location", "cannot be loaded") from error
    _present_certificate(context, settings)
    _limit_ciphers(context, settings)
    algorithm = settings.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", "none"):
        raise InvalidSetting(
            "ssl.endpoint.identification.algorithm", "must be https or none"
        )
    context.check_hostname = algorithm == "https"
    if not _flag(settings, "enable.ssl.certificate.verification", default=True):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _present_certificate(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    certificate = settings.get("ssl.certificate.location")
    if certificate is None:
        if "ssl.key.location" in settings:
            raise InvalidSetting(
                "ssl.certificate.location", "is needed with ssl.key.location"
            )
        return
    password = settings.get("ssl.key.password", "")
    try:
        # Always a password: without one OpenSSL would ask on the terminal.
        context.load_cert_chain(certificate, settings.get("ssl.key.location"), password)
    except (OSError, ValueError) as error:
        raise InvalidSetting(
            "ssl.certificate.location", "the certificate or its key cannot be loaded"
        ) from error


def _limit_ciphers(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    if ciphers := settings.get("ssl.cipher.suites"):
        try:
            context.set_ciphers(ciphers)
        except ssl.SSLError as error:
            raise InvalidSetting("ssl.cipher.suites", "names no cipher") from error


def _flag(settings: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = settings.get(name, _TRUE[0] if default else _FALSE[0]).lower()
    if value not in _TRUE + _FALSE:
        raise InvalidSetting(name, "must be true or false")
    return value in _TRUE
