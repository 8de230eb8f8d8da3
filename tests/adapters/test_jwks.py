"""Tokens verified with the keys that an issuer publishes over real HTTP."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from joserfc.errors import SecurityWarning

from cachemind.adapters.jwks import FETCHES, REFRESH_S, STALE_S, JwksVerifier
from cachemind.core.access import Caller, Role
from cachemind.core.oidc import Issuer, Rule
from cachemind.types import Namespace
from tests.oidc_issuer import AUDIENCE, OidcIssuer, oidc_issuer

S = 1_000_000_000
RULE = Rule(
    claim="groups",
    value="admins",
    role=Role.CACHE_ADMIN,
    namespaces=(Namespace("shop"),),
)


@pytest.fixture
def issuer() -> Iterator[OidcIssuer]:
    with oidc_issuer() as running:
        yield running


def config(running: OidcIssuer, **changes: Any) -> Issuer:
    fields = {"issuer": running.url, "audience": AUDIENCE, "rules": (RULE,)}
    return Issuer(**{**fields, **changes})


@pytest.fixture
async def verifier(issuer: OidcIssuer) -> AsyncIterator[JwksVerifier]:
    made = JwksVerifier(config(issuer))
    yield made
    await made.close()


async def who(
    verifier: JwksVerifier, token: str, later_s: float = 0.0
) -> Caller | None:
    """Return who presents a token, as the gateway asks."""
    now_ns = time.time_ns() + int(later_s * S)
    found = verifier.verify(token, now_ns)
    if found is None and await verifier.learn(token, now_ns):
        return verifier.verify(token, now_ns)
    return found


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_a_token_of_the_issuer_counts(
    issuer: OidcIssuer, verifier: JwksVerifier, algorithm: str
) -> None:
    issuer.add_key("k1", algorithm)
    token = issuer.token("k1", algorithm=algorithm)
    found = await who(verifier, token)
    assert found is not None
    assert found.principal == f"oidc:{issuer.url.removeprefix('http://')}/alice"
    # Its keys are asked for once, not for each token.
    assert await who(verifier, token) == found
    assert issuer.asked == ["/.well-known/openid-configuration", "/keys"]


async def test_keys_may_be_named_without_discovery(issuer: OidcIssuer) -> None:
    issuer.add_key("k1")
    verifier = JwksVerifier(config(issuer, jwks_url=f"{issuer.url}/keys"))
    assert await who(verifier, issuer.token("k1")) is not None
    assert issuer.asked == ["/keys"]


async def test_a_token_that_does_not_hold_is_nobody(
    issuer: OidcIssuer, verifier: JwksVerifier
) -> None:
    right = issuer.add_key("k1")
    wrong = issuer.add_key("k2")
    assert await who(verifier, issuer.token("k1")) is not None
    head, claims, signature = issuer.token("k1").split(".")
    other = issuer.token("k1", sub="mallory").split(".")[1]
    empty = base64.urlsafe_b64encode(b'{"alg":"none","kid":"k1"}').decode().rstrip("=")
    for token in (
        issuer.token("k1", signed_by=wrong),
        issuer.token("k2", signed_by=right),
        f"{head}.{other}.{signature}",
        f"{head}.{claims}.",
        f"{head}.{claims}.{signature[:-2]}",
        f"{empty}.{claims}.",
        issuer.token("k1", exp=int(time.time()) - 61),
        issuer.token("k1", aud="another"),
        issuer.token("k1", iss="https://login.example"),
        issuer.token("k1", groups=["staff"]),
        issuer.token("k1", header={"kid": None}),  # which of the two?
    ):
        assert await who(verifier, token) is None


async def test_a_public_key_is_no_shared_secret(
    issuer: OidcIssuer, verifier: JwksVerifier
) -> None:
    """The oldest trick: HS256 with the public key, which everybody has, as secret."""
    key = issuer.add_key("k1")
    assert await who(verifier, issuer.token("k1")) is not None
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"k1"}').rstrip(b"=")
    claims = issuer.token("k1").split(".")[1].encode()
    mac = hmac.digest(key.as_pem(private=False), head + b"." + claims, "sha256")
    signature = base64.urlsafe_b64encode(mac).rstrip(b"=")
    assert await who(verifier, b".".join((head, claims, signature)).decode()) is None


async def test_rotation_is_followed_at_once(
    issuer: OidcIssuer, verifier: JwksVerifier
) -> None:
    issuer.add_key("k1")
    assert await who(verifier, issuer.token("k1")) is not None
    issuer.add_key("k2")
    assert await who(verifier, issuer.token("k2")) is not None
    assert await who(verifier, issuer.token("k1")) is not None


async def test_a_key_that_was_withdrawn_counts_no_more_after_a_while(
    issuer: OidcIssuer, verifier: JwksVerifier
) -> None:
    issuer.add_key("k1")
    issuer.add_key("k2")
    token = issuer.token("k1", exp=int(time.time()) + 86_400)
    assert await who(verifier, token) is not None
    del issuer.keys["k1"]
    # The first token after that has the keys fetched beside it, and does not wait.
    assert await who(verifier, token, REFRESH_S) is not None
    async with asyncio.timeout(10):
        while await who(verifier, token, REFRESH_S + 1) is not None:
            await asyncio.sleep(0)
    assert await who(verifier, issuer.token("k2"), REFRESH_S + 1) is not None


async def test_while_the_issuer_is_away_the_keys_that_are_known_count(
    issuer: OidcIssuer, verifier: JwksVerifier
) -> None:
    issuer.add_key("k1")
    token = issuer.token("k1", exp=int(time.time()) + 10 * STALE_S)
    assert await who(verifier, token) is not None
    issuer.down = True
    assert await who(verifier, token, STALE_S - 1) is not None
    issuer.add_key("k2")
    assert await who(verifier, issuer.token("k2"), STALE_S - 1) is None
    # For ever they do not: nobody knows what was withdrawn meanwhile.
    assert await who(verifier, token, STALE_S + 60) is None
    issuer.down = False
    assert await who(verifier, token, STALE_S + 120) is not None


@pytest.mark.parametrize(
    "published",
    [b"", b"[]", b"{", b'{"keys":[]}', b'{"keys":[{"kty":"oct","k":"AAAA"}]}'],
)
async def test_what_is_no_set_of_keys_takes_the_place_of_none(
    issuer: OidcIssuer, verifier: JwksVerifier, published: bytes
) -> None:
    issuer.add_key("k1")
    token = issuer.token("k1", exp=int(time.time()) + STALE_S)
    assert await who(verifier, token) is not None
    issuer.published = published
    issuer.add_key("k2")
    assert await who(verifier, issuer.token("k2")) is None
    assert await who(verifier, token) is not None


async def test_keys_that_are_not_understood_are_passed_over(
    issuer: OidcIssuer, verifier: JwksVerifier
) -> None:
    good = issuer.add_key("k1").as_dict(private=False)
    with pytest.warns(SecurityWarning):
        weak_key = issuer.add_key("weak", bits=1024)
    weak = weak_key.as_dict(private=False)
    others = [
        {"kty": "AKP", "kid": "pq", "alg": "ML-DSA-44", "pub": "AAAA"},
        {"kty": "RSA", "kid": "broken"},
        {"kty": "EC", "kid": "k1", "crv": "P-521", "x": "AA", "y": "AA"},
        {**good, "kid": "sealing", "use": "enc"},
        weak,
        "nonsense",
    ]
    issuer.published = json.dumps({"keys": [*others, good]}).encode()
    assert await who(verifier, issuer.token("k1")) is not None
    assert await who(verifier, issuer.token("weak")) is None
    sealing = issuer.token("k1", header={"kid": "sealing"})
    assert await who(verifier, sealing) is None


async def test_a_token_that_names_no_key_is_of_the_only_one_that_signs(
    issuer: OidcIssuer, verifier: JwksVerifier
) -> None:
    good = issuer.add_key("k1").as_dict(private=False)
    sealing = {**issuer.add_key("k2").as_dict(private=False), "use": "enc"}
    issuer.published = json.dumps({"keys": [sealing, good]}).encode()
    assert await who(verifier, issuer.token("k1", header={"kid": None})) is not None


async def test_the_issuer_is_asked_at_a_bounded_rate(
    issuer: OidcIssuer, verifier: JwksVerifier
) -> None:
    key = issuer.add_key("k1")
    began = time.monotonic()
    for number in range(50):
        made_up = issuer.token(f"x{number}", signed_by=key)
        assert await who(verifier, made_up) is None
    more = (time.monotonic() - began) * FETCHES.per_s
    assert FETCHES.burst <= issuer.asked.count("/keys") <= FETCHES.burst + more
    # It is asked again later, so that nobody can lock a new key out for good.
    issuer.add_key("k2")
    assert await who(verifier, issuer.token("k2"), 60) is not None


async def test_many_at_once_ask_once(
    issuer: OidcIssuer, verifier: JwksVerifier
) -> None:
    issuer.add_key("k1")
    token = issuer.token("k1")
    found = await asyncio.gather(*(who(verifier, token) for _ in range(20)))
    assert None not in found
    assert issuer.asked.count("/keys") == 1


async def test_a_caller_that_goes_away_takes_the_answer_from_nobody(
    issuer: OidcIssuer, verifier: JwksVerifier
) -> None:
    issuer.add_key("k1")
    token = issuer.token("k1")
    gone = asyncio.create_task(who(verifier, token))
    stays = asyncio.create_task(who(verifier, token))
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays is not None


@pytest.mark.parametrize(
    "discovered",
    [
        {"issuer": "https://login.example"},
        {"jwks_uri": None},
        {"jwks_uri": "http://keys.example/keys"},
        {"jwks_uri": "file:///etc/passwd"},
    ],
)
async def test_a_discovery_document_must_hold(
    issuer: OidcIssuer, verifier: JwksVerifier, discovered: dict[str, Any]
) -> None:
    issuer.add_key("k1")
    issuer.discovered = discovered
    assert await who(verifier, issuer.token("k1")) is None
    assert "/keys" not in issuer.asked


async def test_a_token_of_somebody_else_asks_nobody(
    issuer: OidcIssuer, verifier: JwksVerifier
) -> None:
    issuer.add_key("k1")
    for token in (
        issuer.token("k1", iss="https://login.example"),
        "sk.upstream.key",
        issuer.token("k1").replace(".", "", 1) + ".x",
    ):
        assert await who(verifier, token) is None
    assert issuer.asked == []


async def test_an_issuer_that_is_not_there_is_no_error(issuer: OidcIssuer) -> None:
    issuer.add_key("k1")
    nobody = "http://127.0.0.1:9"
    verifier = JwksVerifier(config(issuer, issuer=nobody))
    assert await who(verifier, issuer.token("k1", iss=nobody)) is None
