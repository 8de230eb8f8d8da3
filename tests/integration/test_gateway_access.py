"""Who may do what over HTTP, with the real client: keys, namespaces, rights, limits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from cachemind.core.access import ACCESS_NAMESPACE, Role
from cachemind.core.token_bucket import Rate
from cachemind.events import Outcome, PolicyChanged, RolledBack, Stored
from cachemind.types import Namespace
from cachemind_services.gateway.deps import Access
from cachemind_services.gateway.limits import Limits
from tests.access_host import (
    KeyRing,
    append,
    envelopes_of,
    reads_of,
    status_of,
    wait_for_key,
)
from tests.gateways import World, gateway
from tests.upstreams import (
    Received,
    ScriptedUpstream,
    Send,
    completion,
    piece,
    served,
    sse,
    start,
    wait_until,
)

SHOP, BANK = "shop", "bank"
HELD = ((b"authorization", b"Bearer sk-held"), (b"x-plan", b"gold"))


@pytest.fixture
def upstream() -> ScriptedUpstream:
    return ScriptedUpstream()


@pytest.fixture
def ring() -> KeyRing:
    ring = KeyRing()
    ring.issue("writer", Role.CACHE_WRITER, SHOP)
    ring.issue("reader", Role.CACHE_READER, SHOP)
    ring.issue("admin", Role.CACHE_ADMIN, SHOP)
    ring.issue("auditor", Role.AUDITOR, SHOP)
    ring.issue("both", Role.CACHE_WRITER, SHOP, BANK)
    ring.issue("banker", Role.CACHE_WRITER, BANK)
    ring.issue("public", Role.CACHE_WRITER, SHOP, prefixes=("public:",))
    ring.issue("operator", Role.CACHE_ADMIN, ACCESS_NAMESPACE)
    return ring


@pytest.fixture
def world(upstream: ScriptedUpstream, ring: KeyRing) -> Iterator[World]:
    access = Access(upstream={Namespace(BANK): HELD})
    with served(upstream) as url, gateway(url, access=access) as world:
        ring.publish(world)
        wait_for_key(world, ring.texts["writer"])
        yield world


def client(world: World, key: str, **more: str) -> openai.OpenAI:
    """The real client, whose API key is one of ours."""
    return openai.OpenAI(
        base_url=f"{world.url}/v1", api_key=key, max_retries=0, default_headers=more
    )


def request(prompt: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": prompt}]
    return {"model": "m", "messages": messages, "temperature": 0, **more}


def ask(asking: openai.OpenAI, prompt: str = "Why is the sky blue?") -> str:
    with asking:
        raw = asking.chat.completions.with_raw_response.create(**request(prompt))
    assert raw.parse().choices[0].message.content
    return str(raw.headers["x-cachemind-outcome"])


def entry(prompt: str) -> dict[str, Any]:
    asked = request(prompt)
    return {"request": asked, "response": completion(asked)}


def folded(world: World, namespace: str, stored: int) -> None:
    """Return once the log has so many entries stored in a namespace."""
    wait_until(
        lambda: (
            sum(
                isinstance(envelope.body, Stored)
                for envelope in envelopes_of(world, namespace)
            )
            == stored
        )
    )


def call(world: World, method: str, path: str, key: str, **more: Any) -> httpx.Response:
    headers = {"X-CacheMind-Key": key, **more.pop("headers", {})}
    return httpx.request(method, world.url + path, headers=headers, **more)


def error_of(response: httpx.Response) -> Any:
    return response.json()["error"]


class Held:
    """Streams the beginning, and the rest once it is let."""

    def __init__(self) -> None:
        self.open = threading.Event()

    async def __call__(self, received: Received, send: Send) -> None:
        frames = sse(completion(received.json), include_usage=True)
        await start(send, 200, b"text/event-stream")
        await piece(send, frames[0])
        while not self.open.is_set():
            await asyncio.sleep(0.002)
        await piece(send, b"".join(frames[1:]), more=False)


# ---- who asks -----------------------------------------------------------------------


def test_without_a_key_that_counts_there_is_no_answer(
    world: World, ring: KeyRing, upstream: ScriptedUpstream
) -> None:
    before = len(reads_of(world, ACCESS_NAMESPACE))
    wrong = ring.texts["writer"][:-1] + "."
    for key in ("sk-upstream", wrong, ring.texts["writer"].upper()):
        with pytest.raises(openai.AuthenticationError) as refused:
            ask(client(world, key))
        assert refused.value.response.headers["www-authenticate"].startswith("Bearer")
    assert httpx.get(f"{world.url}/v1/versions").status_code == 401
    assert httpx.get(f"{world.url}/metrics").status_code == 401
    assert httpx.get(f"{world.url}/v1/models").status_code == 401
    assert httpx.get(f"{world.url}/healthz").status_code == 200
    assert httpx.get(f"{world.url}/readyz").status_code == 200
    assert httpx.head(f"{world.url}/readyz").status_code == 200
    assert not upstream.received
    wait_until(lambda: len(reads_of(world, ACCESS_NAMESPACE)) >= before + 6)
    refusals = reads_of(world, ACCESS_NAMESPACE)
    assert {read.reason for read in refusals} == {"unauthenticated"}
    assert {read.outcome for read in refusals} == {Outcome.BYPASS}
    assert {read.principal for read in refusals} == {"anonymous"}


def test_a_writer_misses_and_then_hits_under_its_own_name(
    world: World, ring: KeyRing
) -> None:
    key = ring.texts["writer"]
    assert ask(client(world, key)) == "miss"
    assert ask(client(world, key)) == "hit_exact"
    folded(world, SHOP, 1)
    assert {read.principal for read in reads_of(world, SHOP)} == {
        ring.principal("writer")
    }
    stored = [e for e in envelopes_of(world, SHOP) if isinstance(e.body, Stored)]
    assert stored[0].principal == ring.principal("writer")


def test_two_keys_of_a_namespace_share_what_one_upstream_credential_answered(
    world: World, ring: KeyRing
) -> None:
    assert ask(client(world, ring.texts["writer"])) == "miss"
    assert ask(client(world, ring.texts["both"], **_in(SHOP))) == "hit_exact"
    # With a credential of its own a caller gets an answer of its own.
    own = client(world, "sk-own", **{"X-CacheMind-Key": ring.texts["writer"]})
    assert ask(own) == "miss"


def _in(namespace: str) -> dict[str, str]:
    return {"X-CacheMind-Namespace": namespace}


def test_a_revoked_an_expired_and_an_early_key_do_not_count(
    world: World, ring: KeyRing
) -> None:
    key = {name: {"X-CacheMind-Key": text} for name, text in ring.texts.items()}
    assert status_of(world, key["writer"]) == status_of(world, key["reader"]) == 200
    now_ms = time.time_ns() // 1_000_000
    ring.change("writer", revoked_ms=now_ms)
    ring.change("reader", expires_ms=now_ms + 400)
    ring.change("admin", not_before_ms=now_ms + 3_600_000)
    ring.publish(world)
    wait_until(lambda: status_of(world, key["writer"]) == 401)
    assert status_of(world, key["admin"]) == 401
    wait_until(lambda: status_of(world, key["reader"]) == 401)
    assert status_of(world, key["both"]) == 200


def test_who_asks_is_told_who_he_is(world: World, ring: KeyRing) -> None:
    found = call(world, "GET", "/v1/cachemind/whoami", ring.texts["both"]).json()
    assert found["principal"] == ring.principal("both")
    assert found["namespaces"] == [BANK, SHOP]
    assert found["namespace"] is None
    named = {"headers": _in(BANK)}
    found = call(
        world, "GET", "/v1/cachemind/whoami", ring.texts["both"], **named
    ).json()
    assert found["namespace"] == BANK
    assert "store" in found["rights"]
    assert "rollback" not in found["rights"]


def test_a_key_book_that_cannot_be_read_holds_no_key(
    world: World, ring: KeyRing
) -> None:
    broken = f'{{"revision":{ring.revision + 1},"keys":[{{}}]}}'
    append(world, ACCESS_NAMESPACE, PolicyChanged(policy=broken))
    wait_until(lambda: status_of(world, {"X-CacheMind-Key": ring.texts["both"]}) == 401)
    warned = httpx.get(f"{world.url}/readyz").json()["warnings"]
    assert any("key book" in warning for warning in warned)


# ---- where --------------------------------------------------------------------------


def test_what_one_namespace_stores_no_other_is_served(
    world: World, ring: KeyRing, upstream: ScriptedUpstream
) -> None:
    both = ring.texts["both"]
    assert ask(client(world, both, **_in(SHOP))) == "miss"
    assert ask(client(world, both, **_in(BANK))) == "miss"
    assert ask(client(world, both, **_in(SHOP))) == "hit_exact"
    assert ask(client(world, both, **_in(BANK))) == "hit_exact"
    assert ask(client(world, ring.texts["banker"])) == "hit_exact"
    assert len(upstream.received) == 2


def test_a_namespace_is_named_where_there_are_several(
    world: World, ring: KeyRing
) -> None:
    with pytest.raises(openai.BadRequestError, match="X-CacheMind-Namespace"):
        ask(client(world, ring.texts["both"]))
    for other in (BANK, "none", "Shop", "shop/", "\u0455hop", ACCESS_NAMESPACE, ""):
        headers = {b"X-CacheMind-Namespace": other.encode()}
        refused = httpx.post(
            f"{world.url}/v1/chat/completions",
            headers={**headers, b"X-CacheMind-Key": ring.texts["writer"].encode()},
            json=request("x"),
        )
        assert refused.status_code == 403, other
    wait_until(
        lambda: (
            [
                read.reason
                for read in reads_of(world, ACCESS_NAMESPACE)
                if read.principal == ring.principal("writer")
            ]
            == ["forbidden:namespace"] * 7
        )
    )
    assert not reads_of(world, BANK)


# ---- what upstream sees -------------------------------------------------------------


def test_our_key_stays_here_and_a_held_credential_takes_its_place(
    world: World, ring: KeyRing, upstream: ScriptedUpstream
) -> None:
    ask(client(world, ring.texts["banker"]))
    seen = upstream.received[-1]
    assert seen.header("authorization") == "Bearer sk-held"
    assert seen.header("x-plan") == "gold"
    ask(client(world, ring.texts["writer"]))
    assert upstream.received[-1].header("authorization") is None
    own = {"X-CacheMind-Key": ring.texts["banker"]}
    ask(client(world, "sk-own", **own), "Another one?")
    assert upstream.received[-1].header("authorization") == "Bearer sk-own"
    assert upstream.received[-1].header("x-plan") is None
    call(world, "GET", "/v1/models", ring.texts["banker"], headers={"X-Plan": "free"})
    assert upstream.received[-1].target == "/v1/models"
    assert upstream.received[-1].header("x-plan") == "gold"
    for received in upstream.received:
        told = str(received.headers)
        assert not any(text in told for text in ring.texts.values())
        assert "x-cachemind" not in told


def test_a_key_for_us_is_not_told_to_upstream_where_nobody_asks_for_it(
    upstream: ScriptedUpstream,
) -> None:
    headers = {"X-CacheMind-Key": "cmk_meant-for-us"}
    with served(upstream) as url, gateway(url) as world:
        httpx.get(f"{world.url}/v1/models", headers=headers)
        path = f"{world.url}/v1/chat/completions"
        httpx.post(path, headers=headers, json=request("x"))
    assert len(upstream.received) == 2
    assert not any("cmk_" in str(received.headers) for received in upstream.received)


# ---- rights -------------------------------------------------------------------------


def test_a_reader_is_answered_and_leaves_nothing_behind(
    world: World, ring: KeyRing, upstream: ScriptedUpstream
) -> None:
    reader = ring.texts["reader"]
    assert ask(client(world, reader)) == "miss"
    assert ask(client(world, reader)) == "miss"
    assert len(upstream.received) == 2
    assert not [e for e in envelopes_of(world, SHOP) if isinstance(e.body, Stored)]
    assert ask(client(world, ring.texts["writer"])) == "miss"
    assert ask(client(world, reader)) == "hit_exact"


def test_a_missing_right_is_named_and_logged_where_it_was_missing(
    world: World, ring: KeyRing
) -> None:
    refused = call(world, "POST", "/v1/rollback?to_version=1", ring.texts["writer"])
    assert refused.status_code == 403
    assert error_of(refused)["param"] == "rollback"
    assert "rollback" in error_of(refused)["message"]
    wait_until(lambda: bool(reads_of(world, SHOP)))
    [read] = reads_of(world, SHOP)
    assert read.reason == "forbidden:rollback"
    assert read.principal == ring.principal("writer")


def test_a_rollback_is_its_admins_and_touches_no_neighbour(
    world: World, ring: KeyRing
) -> None:
    admin, banker = ring.texts["admin"], ring.texts["banker"]
    assert ask(client(world, admin)) == "miss"
    assert ask(client(world, banker)) == "miss"
    folded(world, SHOP, 1)
    done = call(world, "POST", "/v1/rollback?to_version=0", admin)
    assert done.status_code == 200, done.text
    assert ask(client(world, admin)) == "miss"
    assert ask(client(world, banker)) == "hit_exact"
    [rolled_back] = [
        envelope
        for envelope in envelopes_of(world, SHOP)
        if isinstance(envelope.body, RolledBack)
    ]
    assert rolled_back.principal == ring.principal("admin")
    versions = call(world, "GET", "/v1/versions", admin).json()
    assert versions["namespace"] == SHOP
    assert call(world, "GET", "/v1/versions?namespace=bank", admin).status_code == 403


def test_only_who_may_override_stores_for_longer_than_the_default(
    world: World, ring: KeyRing
) -> None:
    body = {**entry("x"), "ttl_s": 3 * 86_400}
    path = "/v1/cachemind/entries"
    refused = call(world, "POST", path, ring.texts["writer"], json=body)
    assert refused.status_code == 403
    assert error_of(refused)["param"] == "ttl_override"
    shorter = {**body, "ttl_s": 60}
    assert (
        call(world, "POST", path, ring.texts["writer"], json=shorter).status_code == 201
    )
    kept = call(world, "POST", path, ring.texts["admin"], json=body)
    assert kept.json()["ttl_ms"] == 3 * 86_400_000


def test_a_prefix_reaches_what_is_tagged_with_it_and_nothing_else(
    world: World, ring: KeyRing
) -> None:
    public, writer = ring.texts["public"], ring.texts["writer"]

    def put(key: str, prompt: str, *tags: str) -> int:
        body = {**entry(prompt), "tags": tags}
        return call(world, "POST", "/v1/cachemind/entries", key, json=body).status_code

    assert put(writer, "What is private in here?", "private:x", "xpublic:") == 201
    assert put(writer, "What is public in here?", "public:faq") == 201
    assert put(public, "What else is there?", "private:y") == 403
    assert put(public, "What else is there?") == 403
    assert put(public, "What else is there?", "public:y") == 201
    assert ask(client(world, public), "What is private in here?") == "miss"
    assert ask(client(world, public), "What is public in here?") == "hit_exact"
    # Neither by meaning, nor as an answer stored on its behalf.
    assert ask(client(world, public), "What is then private in here?") == "miss"
    assert ask(client(world, public), "What is then private in here?") == "miss"
    stored = [e for e in envelopes_of(world, SHOP) if isinstance(e.body, Stored)]
    assert sum(each.principal == ring.principal("public") for each in stored) == 1
    for kind, value, status in (
        ("all", "", 403),
        ("tag", "private:x", 403),
        ("model", "m", 403),
        ("tag", "public:faq", 200),
    ):
        body = {"kind": kind, "value": value}
        found = call(world, "POST", "/v1/cachemind/invalidate", public, json=body)
        assert found.status_code == status, body
    assert call(world, "GET", "/v1/versions", public).status_code == 403


# ---- policies -----------------------------------------------------------------------


def test_a_policy_is_followed_while_requests_go_on(world: World, ring: KeyRing) -> None:
    admin, writer = ring.texts["admin"], ring.texts["writer"]
    path = "/v1/cachemind/policy"
    assert ask(client(world, writer)) == "miss"
    assert ask(client(world, writer)) == "hit_exact"
    assert call(world, "PUT", path, writer, json={"enabled": False}).status_code == 403
    set_ = call(world, "PUT", path, admin, json={"enabled": False})
    assert set_.status_code == 200
    assert ask(client(world, writer)) == "bypass"
    wrong = call(world, "PUT", path, admin, json={"threshold": 2})
    assert (wrong.status_code, error_of(wrong)["param"]) == (400, "threshold")
    assert call(world, "PUT", path, admin, json={}).status_code == 200
    assert ask(client(world, writer)) == "hit_exact"
    shown = call(world, "GET", path, admin).json()
    assert shown["policy"]["threshold"] == 0.92
    # Of a policy that nobody can read it is not known what it forbids.
    append(world, Namespace(SHOP), PolicyChanged(policy="nonsense"))
    wait_until(lambda: ask(client(world, writer)) == "bypass")
    warned = httpx.get(f"{world.url}/readyz").json()["warnings"]
    assert any("policy of shop" in warning for warning in warned)


def test_sharing_across_credentials_is_switched_by_the_policy(
    world: World, ring: KeyRing
) -> None:
    ours = {"X-CacheMind-Key": ring.texts["writer"]}
    assert ask(client(world, "sk-one", **ours)) == "miss"
    assert ask(client(world, "sk-two", **ours)) == "miss"
    policy = {"share_across_credentials": True}
    put = call(world, "PUT", "/v1/cachemind/policy", ring.texts["admin"], json=policy)
    assert put.status_code == 200
    assert ask(client(world, "sk-one", **ours)) == "miss"
    assert ask(client(world, "sk-two", **ours)) == "hit_exact"
    banker = {"X-CacheMind-Key": ring.texts["banker"]}
    assert ask(client(world, "sk-two", **banker)) == "miss"


def test_a_full_namespace_answers_and_stores_no_more(
    world: World, ring: KeyRing
) -> None:
    admin, writer = ring.texts["admin"], ring.texts["writer"]
    put = call(world, "PUT", "/v1/cachemind/policy", admin, json={"max_entries": 1})
    assert put.status_code == 200
    assert ask(client(world, writer), "What was first?") == "miss"
    wait_until(
        lambda: call(world, "GET", "/v1/cachemind/stats", admin).json()["entries"] == 1
    )
    with client(world, writer) as asking:
        raw = asking.chat.completions.with_raw_response.create(
            **request("What came second?")
        )
    assert "namespace-full" in raw.headers["cache-status"]
    assert ask(client(world, writer), "What was first?") == "hit_exact"


# ---- limits -------------------------------------------------------------------------


def test_a_key_that_asks_too_often_is_told_when_to_come_back(
    upstream: ScriptedUpstream, ring: KeyRing
) -> None:
    limits = Limits(rate=Rate(per_s=0.5, burst=3.0))
    with served(upstream) as url, gateway(url, access=Access(limits=limits)) as world:
        ring.publish(world)
        wait_for_key(world, ring.texts["writer"])
        writer = client(world, ring.texts["writer"])
        ask(writer)
        ask(client(world, ring.texts["writer"]))
        with pytest.raises(openai.RateLimitError) as refused:
            ask(client(world, ring.texts["writer"]))
        assert 1 <= int(refused.value.response.headers["retry-after"]) <= 2
        # Another one's requests are its own.
        ask(client(world, ring.texts["reader"]))


def test_a_key_has_so_many_streams_open_and_no_more(
    upstream: ScriptedUpstream, ring: KeyRing
) -> None:
    access = Access(limits=Limits(streams=1))
    with served(upstream) as url, gateway(url, access=access) as world:
        ring.publish(world)
        key = ring.texts["writer"]
        wait_for_key(world, key)
        upstream.behaviour = held = Held()
        path = f"{world.url}/v1/chat/completions"
        headers = {"X-CacheMind-Key": key}
        first = request("Say it slowly, please.", stream=True)
        second = request("And this as well, please.", stream=True)
        with httpx.stream("POST", path, headers=headers, json=first) as open_one:
            assert open_one.status_code == 200
            refused = httpx.post(path, headers=headers, json=second)
            assert refused.status_code == 429
            assert refused.headers["retry-after"] == "1"
            other = {"X-CacheMind-Key": ring.texts["reader"]}
            with httpx.stream("POST", path, headers=other, json=second) as theirs:
                assert theirs.status_code == 200
            held.open.set()
        wait_until(
            lambda: httpx.post(path, headers=headers, json=second).status_code == 200
        )
