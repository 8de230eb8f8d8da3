"""Tokens of an OpenID Connect issuer: what must hold, and the grant that follows.

A token's signature is checked elsewhere; here is what its claims must say and what
they are worth. Rules are read in order and the first that fits is the grant; a token
that none fits is nobody's.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from cachemind.core.access import Caller, Role
from cachemind.core.api_keys import check_grant
from cachemind.errors import InvalidEvent
from cachemind.types import Namespace, Principal

ALGORITHMS: Final = ("RS256", "ES256")
SKEW_S: Final = 60
"""How far the issuer's clock and ours may be apart."""

DISCOVERY: Final = "/.well-known/openid-configuration"
LONGEST_SUBJECT: Final = 255
_MOST_RULES: Final = 256
_NS_PER_S: Final = 1_000_000_000
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_SCOPE: Final = "scope"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A claim's value and what it grants. A list claim fits by any of its members."""

    claim: str
    value: str
    role: Role
    namespaces: tuple[Namespace, ...]
    prefixes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.claim or not self.value:
            raise InvalidEvent("claim", "claim and value must not be empty")
        check_grant(self.role, self.namespaces, self.prefixes)

    def fits(self, claims: Mapping[str, Any]) -> bool:
        """Return whether a token with these claims gets this grant."""
        found = claims.get(self.claim)
        if isinstance(found, str):
            # OAuth writes scopes as one text (RFC 6749 section 3.3).
            members = found.split(" ") if self.claim == _SCOPE else [found]
            return self.value in members
        return isinstance(found, list) and self.value in found


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """Whose tokens count, for which audience, and what they are worth.

    `jwks_url` empty: found by the issuer's discovery document.
    """

    issuer: str
    audience: str
    rules: tuple[Rule, ...]
    jwks_url: str = ""
    algorithms: tuple[str, ...] = ALGORITHMS

    def __post_init__(self) -> None:
        check_url("issuer", self.issuer)
        if self.jwks_url:
            check_url("jwks_url", self.jwks_url)
        if not self.audience:
            raise InvalidEvent("audience", "must not be empty")
        if not 1 <= len(self.rules) <= _MOST_RULES:
            raise InvalidEvent("grant", f"must be 1 to {_MOST_RULES} rules")
        if not self.algorithms or not set(self.algorithms) <= set(ALGORITHMS):
            known = ", ".join(ALGORITHMS)
            raise InvalidEvent("algorithms", f"must be some of {known}")

    @property
    def host(self) -> str:
        """Return the issuer's host, which stands for it in principals."""
        return urlsplit(self.issuer).netloc

    @property
    def discovery_url(self) -> str:
        """Return where the issuer says where its keys are."""
        return self.issuer.rstrip("/") + DISCOVERY


def check_url(field: str, url: str) -> None:
    """Do nothing for a URL over which keys may be fetched. Raises: `InvalidEvent`."""
    parts = urlsplit(url)
    plain = parts.scheme == "http" and parts.hostname in _LOOPBACK
    if not parts.hostname or not (parts.scheme == "https" or plain):
        raise InvalidEvent(field, "must be an https URL, or http on this machine")


@dataclass(frozen=True, slots=True)
class Peek:
    """What a token says of itself. Nothing of it may be believed."""

    issuer: object
    algorithm: object
    key_id: str | None


def peek(token: str) -> Peek | None:
    """Return what an unverified token says of itself, None where it is no token."""
    head, _, rest = token.partition(".")
    header, claims = _json(head), _json(rest.partition(".")[0])
    if header is None or claims is None:
        return None
    key_id = header.get("kid")
    if key_id is not None and not isinstance(key_id, str):
        return None
    return Peek(claims.get("iss"), header.get("alg"), key_id)


def caller_of(issuer: Issuer, claims: Mapping[str, Any], now_ns: int) -> Caller | None:
    """Return who a token with these claims is, None where they do not count now.

    The token's signature was verified.
    Units: `now_ns` since the Unix epoch (UTC); times in claims are seconds.
    Source: RFC 7519 section 4.1; `exp`, `sub` and `aud` are demanded.
    """
    if claims.get("iss") != issuer.issuer or not _is_for(issuer.audience, claims):
        return None
    if not _is_current(claims, now_ns / _NS_PER_S):
        return None
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject.isprintable():
        return None
    if not 1 <= len(subject) <= LONGEST_SUBJECT:
        return None
    for rule in issuer.rules:
        if rule.fits(claims):
            principal = Principal(f"oidc:{issuer.host}/{subject}")
            return Caller(
                principal=principal,
                role=rule.role,
                namespaces=frozenset(rule.namespaces),
                prefixes=rule.prefixes,
                credential_id=principal,
            )
    return None


def _is_for(audience: str, claims: Mapping[str, Any]) -> bool:
    found = claims.get("aud")
    return found == audience or (isinstance(found, list) and audience in found)


def _is_current(claims: Mapping[str, Any], now_s: float) -> bool:
    expires = _time(claims.get("exp"))
    if expires is None or now_s >= expires + SKEW_S:
        return False
    for name in ("nbf", "iat"):
        if name in claims:
            begins = _time(claims[name])
            if begins is None or now_s < begins - SKEW_S:
                return False
    return True


def _time(found: object) -> float | None:
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return float(found) if math.isfinite(found) else None


def _json(part: str) -> dict[str, Any] | None:
    try:
        raw = base64.b64decode(part + "=" * (-len(part) % 4), b"-_", validate=True)
        found = orjson.loads(raw)
    except (binascii.Error, ValueError):
        return None
    return found if isinstance(found, dict) else None


# ---- the file that says whose tokens count -------------------------------------------


def parse_issuer(document: Mapping[str, Any]) -> Issuer:
    """Return the issuer that a TOML document describes.

    Raises: `InvalidEvent` naming the member.
    """
    _only(document, {"issuer", "audience", "jwks_url", "algorithms", "grant"})
    grants = document.get("grant")
    if not isinstance(grants, list):
        raise InvalidEvent("grant", "must be one or more [[grant]]")
    return Issuer(
        issuer=_text(document, "issuer"),
        audience=_text(document, "audience"),
        jwks_url=_text(document, "jwks_url", ""),
        algorithms=_texts(document, "algorithms", ALGORITHMS),
        rules=tuple(map(_rule, grants)),
    )


def _rule(found: object) -> Rule:
    if not isinstance(found, Mapping):
        raise InvalidEvent("grant", "must be a table")
    _only(found, {"claim", "value", "role", "namespaces", "prefixes"})
    role = _text(found, "role")
    if role not in list(Role):
        raise InvalidEvent("role", "must be one of " + ", ".join(Role))
    return Rule(
        claim=_text(found, "claim"),
        value=_text(found, "value"),
        role=Role(role),
        namespaces=tuple(map(Namespace, _texts(found, "namespaces"))),
        prefixes=_texts(found, "prefixes", ()),
    )


def _only(found: Mapping[str, Any], known: set[str]) -> None:
    for name in found:
        if name not in known:
            raise InvalidEvent(str(name), "is not known here")


def _text(found: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = found.get(name, default)
    if not isinstance(value, str):
        raise InvalidEvent(name, "must be there, as text")
    return value


def _texts(
    found: Mapping[str, Any], name: str, default: Sequence[str] | None = None
) -> tuple[str, ...]:
    value = found.get(name, default)
    if not isinstance(value, list | tuple) or not all(
        isinstance(item, str) for item in value
    ):
        raise InvalidEvent(name, "must be there, as a list of texts")
    return tuple(value)
