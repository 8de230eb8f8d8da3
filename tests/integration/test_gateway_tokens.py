"""Tokens of an OpenID Connect issuer at a real gateway, from a real issuer."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from cachemind.adapters.jwks import JwksVerifier
from cachemind.core.access import Role
from cachemind.core.oidc import Issuer, Rule
from cachemind.events import Outcome
from cachemind.types import Namespace
from cachemind_services.gateway.deps import Access
from tests.access_host import KeyRing, reads_of, wait_for_key
from tests.gateways import World, gateway
from tests.oidc_issuer import AUDIENCE, OidcIssuer, oidc_issuer
from tests.upstreams import ScriptedUpstream, served, wait_until

SHOP = Namespace("shop")
RULES = (
    Rule(claim="groups", value="admins", role=Role.CACHE_ADMIN, namespaces=(SHOP,)),
    Rule(claim="groups", value="staff", role=Role.CACHE_READER, namespaces=(SHOP,)),
)


@pytest.fixture
def issuer() -> Iterator[OidcIssuer]:
    with oidc_issuer() as running:
        running.add_key("k1", "ES256")
        yield running


@pytest.fixture
def upstream() -> ScriptedUpstream:
    return ScriptedUpstream()


@pytest.fixture
def world(upstream: ScriptedUpstream, issuer: OidcIssuer) -> Iterator[World]:
    config = Issuer(issuer=issuer.url, audience=AUDIENCE, rules=RULES)
    ring = KeyRing()
    ring.issue("writer", Role.CACHE_WRITER, SHOP)
    access = Access(tokens=JwksVerifier(config))
    with served(upstream) as url, gateway(url, access=access) as world:
        ring.publish(world)
        wait_for_key(world, ring.texts["writer"])
        yield world


def call(world: World, token: str, method: str, path: str) -> httpx.Response:
    headers = {"authorization": f"Bearer {token}"}
    return httpx.request(method, f"{world.url}{path}", headers=headers)


def whoami(world: World, token: str) -> httpx.Response:
    return call(world, token, "GET", "/v1/cachemind/whoami")


def test_a_token_is_its_subject_with_its_grant_and_stays_here(
    world: World, issuer: OidcIssuer, upstream: ScriptedUpstream
) -> None:
    token = issuer.token("k1", algorithm="ES256")
    shown = whoami(world, token).json()
    host = issuer.url.removeprefix("http://")
    assert shown["principal"] == f"oidc:{host}/alice"
    assert (shown["role"], shown["namespaces"]) == ("cache-admin", ["shop"])
    body = {"model": "m", "messages": [{"role": "user", "content": "Why?"}]}
    answer = httpx.post(
        f"{world.url}/v1/chat/completions",
        headers={"authorization": f"Bearer {token}"},
        json=body,
    )
    assert answer.status_code == 200
    assert all(
        token.encode() not in value
        for received in upstream.received
        for _, value in received.headers
    )
    wait_until(
        lambda: any(
            read.principal == f"oidc:{host}/alice" for read in reads_of(world, SHOP)
        )
    )


def test_a_missing_right_of_a_token_is_named(world: World, issuer: OidcIssuer) -> None:
    token = issuer.token("k1", algorithm="ES256", groups=["staff"])
    answer = call(world, token, "GET", "/v1/versions")
    assert answer.status_code == 403
    assert "inspect" in answer.json()["error"]["message"]


def test_a_token_that_does_not_count_is_a_401_on_the_log(
    world: World, issuer: OidcIssuer
) -> None:
    tokens = [
        issuer.token("k1", algorithm="ES256", aud="another"),
        issuer.token("k1", algorithm="ES256", groups=["guests"]),
        issuer.token("k1", algorithm="ES256", exp=1),
        "a.b.c",
    ]
    for token in tokens:
        answer = whoami(world, token)
        assert answer.status_code == 401
        assert token not in answer.text

    def refused() -> int:
        reads = reads_of(world, "cachemind.access")
        return sum(
            (read.outcome, read.reason) == (Outcome.BYPASS, "unauthenticated")
            for read in reads
        )

    wait_until(lambda: refused() >= len(tokens))


def test_a_new_key_of_the_issuer_counts_at_once_and_an_outage_changes_nothing(
    world: World, issuer: OidcIssuer
) -> None:
    assert whoami(world, issuer.token("k1", algorithm="ES256")).status_code == 200
    issuer.add_key("k2")
    assert whoami(world, issuer.token("k2")).status_code == 200
    issuer.down = True
    assert whoami(world, issuer.token("k2")).status_code == 200
    key = issuer.add_key("k3")
    assert whoami(world, issuer.token("k3", signed_by=key)).status_code == 401
