"""What a token's claims must say, and the grant that follows from them."""

from __future__ import annotations

import base64
import tomllib
from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.access import Role
from cachemind.core.oidc import Issuer, Rule, caller_of, parse_issuer, peek
from cachemind.errors import InvalidEvent
from cachemind.types import Namespace

NOW_S = 1_800_000_000
ISSUER = "https://login.example/realms/main"
SHOP = Namespace("shop")
CONFIG = Issuer(
    issuer=ISSUER,
    audience="cachemind",
    rules=(
        Rule(claim="groups", value="admins", role=Role.CACHE_ADMIN, namespaces=(SHOP,)),
        Rule(
            claim="scope",
            value="cache.read",
            role=Role.CACHE_READER,
            namespaces=(SHOP, Namespace("faq")),
            prefixes=("public:",),
        ),
        Rule(claim="sub", value="robot", role=Role.AUDITOR, namespaces=(SHOP,)),
    ),
)
GOOD: Mapping[str, Any] = {
    "iss": ISSUER,
    "aud": "cachemind",
    "sub": "alice",
    "exp": NOW_S + 300,
    "groups": ["staff", "admins"],
}


def role_of(claims: Mapping[str, Any]) -> Role | None:
    found = caller_of(CONFIG, claims, NOW_S * 1_000_000_000)
    return None if found is None else found.role


def test_a_good_token_is_its_subject_with_the_grant_of_the_rule() -> None:
    found = caller_of(CONFIG, GOOD, NOW_S * 1_000_000_000)
    assert found is not None
    assert found.principal == "oidc:login.example/alice"
    assert (found.role, found.namespaces) == (Role.CACHE_ADMIN, frozenset({SHOP}))
    assert found.credential_id == found.principal


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"groups": ["staff"]}, None, id="no-rule-fits"),
        pytest.param({"groups": "admins"}, Role.CACHE_ADMIN, id="one-text"),
        pytest.param({"groups": "staff admins"}, None, id="only-scope-is-split"),
        pytest.param({"groups": {"admins": 1}}, None, id="neither-text-nor-list"),
        pytest.param({"groups": ["Admins"]}, None, id="other-case"),
        pytest.param(
            {"groups": [], "scope": "openid cache.read"}, Role.CACHE_READER, id="scope"
        ),
        pytest.param({"groups": [], "scope": "cache.readers"}, None, id="part-of-word"),
        pytest.param(
            {"scope": "cache.read"}, Role.CACHE_ADMIN, id="the-first-that-fits"
        ),
        pytest.param({"groups": [], "sub": "robot"}, Role.AUDITOR, id="by-subject"),
    ],
)
def test_the_first_rule_that_fits_is_the_grant(
    changes: dict[str, Any], expected: Role | None
) -> None:
    assert role_of({**GOOD, **changes}) is expected


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        pytest.param({"iss": ISSUER + "/"}, False, id="another-issuer"),
        pytest.param({"iss": None}, False, id="no-issuer"),
        pytest.param({"aud": "other"}, False, id="another-audience"),
        pytest.param({"aud": ["other", "cachemind"]}, True, id="one-of-audiences"),
        pytest.param({"aud": []}, False, id="no-audience"),
        pytest.param({"exp": None}, False, id="no-end"),
        pytest.param({"exp": NOW_S - 59}, True, id="expired-within-the-skew"),
        pytest.param({"exp": NOW_S - 60}, False, id="expired"),
        pytest.param({"exp": "9999999999"}, False, id="end-as-text"),
        pytest.param({"exp": True}, False, id="end-as-flag"),
        pytest.param({"exp": float("inf")}, False, id="endless"),
        pytest.param({"exp": float("nan")}, False, id="no-number"),
        pytest.param({"exp": NOW_S + 0.5}, True, id="a-fraction"),
        pytest.param({"nbf": NOW_S + 60}, True, id="begins-within-the-skew"),
        pytest.param({"nbf": NOW_S + 61}, False, id="not-yet"),
        pytest.param({"nbf": None}, False, id="begin-is-no-number"),
        pytest.param({"iat": NOW_S + 61}, False, id="made-in-the-future"),
        pytest.param({"sub": ""}, False, id="nobody"),
        pytest.param({"sub": None}, False, id="no-subject"),
        pytest.param({"sub": 7}, False, id="subject-is-no-text"),
        pytest.param({"sub": "a\nb"}, False, id="subject-of-two-lines"),
        pytest.param({"sub": "a" * 256}, False, id="subject-too-long"),
    ],
)
def test_every_claim_must_hold(changes: dict[str, Any], *, counts: bool) -> None:
    assert (role_of({**GOOD, **changes}) is not None) is counts


def test_a_token_needs_its_claims() -> None:
    for name in ("iss", "aud", "sub", "exp"):
        assert role_of({key: GOOD[key] for key in GOOD if key != name}) is None


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*GOOD, "scope", "nbf", "iat"]), json))
def test_any_claims_are_somebody_or_nobody_and_no_error(
    changes: dict[str, Any],
) -> None:
    role_of({**GOOD, **changes})


def part(document: object) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(document)).decode().rstrip("=")


def test_a_token_says_which_key_it_wants() -> None:
    found = peek(f"{part({'alg': 'RS256', 'kid': 'k1'})}.{part(GOOD)}.sig")
    assert found is not None
    assert (found.issuer, found.algorithm, found.key_id) == (ISSUER, "RS256", "k1")


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b.c",
        "..",
        f"{part([])}.{part({})}.x",
        f"{part({'kid': 1})}.{part({})}.x",
        f"{part({})}!.{part({})}.x",
    ],
)
def test_what_is_no_token_says_nothing(token: str) -> None:
    assert peek(token) is None


@given(st.text(max_size=60))
def test_any_text_says_something_or_nothing(text: str) -> None:
    peek(text)


TOML = """
issuer = "https://login.example/realms/main"
audience = "cachemind"

[[grant]]
claim = "groups"
value = "admins"
role = "cache-admin"
namespaces = ["shop"]

[[grant]]
claim = "scope"
value = "cache.read"
role = "cache-reader"
namespaces = ["shop", "faq"]
prefixes = ["public:"]

[[grant]]
claim = "sub"
value = "robot"
role = "auditor"
namespaces = ["shop"]
"""


def test_a_file_describes_an_issuer() -> None:
    assert parse_issuer(tomllib.loads(TOML)) == CONFIG
    assert CONFIG.discovery_url == f"{ISSUER}/.well-known/openid-configuration"


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        pytest.param('"https:', '"http:', "issuer", id="plain-http"),
        pytest.param('issuer = "https', 'isuer = "https', "isuer", id="misspelt"),
        pytest.param('"cachemind"', "7", "audience", id="not-a-text"),
        pytest.param('"cachemind"', '""', "audience", id="any-audience"),
        pytest.param("[[grant]]", "[[grants]]", "grants", id="no-grant"),
        pytest.param('"cache-admin"', '"root"', "role", id="no-such-role"),
        pytest.param('["shop"]', "[]", "namespaces", id="nowhere"),
        pytest.param('["shop"]', '["Shop"]', "namespace", id="no-namespace"),
        pytest.param('["shop"]', '"shop"', "namespaces", id="no-list"),
        pytest.param('value = "admins"', "", "value", id="no-value"),
        pytest.param('"admins"', '""', "claim", id="empty-value"),
        pytest.param('["public:"]', '[""]', "prefixes", id="prefix-of-everything"),
        pytest.param(
            'audience = "cachemind"',
            'audience = "c"\nalgorithms = ["none"]',
            "algorithms",
            id="no-signature",
        ),
        pytest.param(
            'audience = "cachemind"',
            'audience = "c"\nalgorithms = ["HS256"]',
            "algorithms",
            id="shared-secret",
        ),
        pytest.param(
            'audience = "cachemind"',
            'audience = "c"\njwks_url = "http://keys.example/"',
            "jwks_url",
            id="keys-over-plain-http",
        ),
    ],
)
def test_a_wrong_file_is_refused_by_its_member(
    before: str, after: str, field: str
) -> None:
    with pytest.raises(InvalidEvent) as caught:
        parse_issuer(tomllib.loads(TOML.replace(before, after)))
    assert caught.value.field == field
