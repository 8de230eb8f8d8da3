"""Changes under an `Idempotency-Key`: done once, whoever is asked how often."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from cachemind.core.access import Role
from cachemind.core.requested import is_requested
from cachemind.events import Feedback, Invalidated, Stored
from cachemind_services.gateway import once
from cachemind_services.gateway.deps import Access
from tests.access_host import KeyRing, wait_for_key
from tests.gateways import World, another_worker, folded, gateway
from tests.upstreams import ScriptedUpstream, completion, served, wait_until

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Why?"}]}
PUT = ("entries", {"request": CHAT, "response": completion(CHAT), "tags": ["t"]})
INVALIDATE = ("invalidate", {"kind": "tag", "value": "t", "reason": "wrong"})
JUDGED = {"key": "ab" * 32, "trace_id": "cd" * 16, "verdict": "wrong"}
FEEDBACK = ("feedback", JUDGED)
KEY = {"Idempotency-Key": '"8e03978e-40d5-43e8-bc93-6894a57f9324"'}
Call = tuple[str, dict[str, Any]]


@pytest.fixture
def upstream_url() -> Iterator[str]:
    with served(ScriptedUpstream()) as url:
        yield url


@pytest.fixture
def world(upstream_url: str) -> Iterator[World]:
    with gateway(upstream_url) as world:
        yield world


def ask(url: str, call: Call, **headers: str) -> httpx.Response:
    path, body = call
    where = f"{url}/v1/cachemind/{path}"
    return httpx.post(where, json=body, headers=headers or KEY, timeout=20)


def entry(world: World, put: httpx.Response) -> httpx.Response:
    return httpx.get(f"{world.url}/v1/cachemind/entries/{put.json()['key']}")


@pytest.mark.parametrize("call", [PUT, INVALIDATE, FEEDBACK])
def test_what_is_asked_again_is_answered_again_and_not_done(
    world: World, call: Call
) -> None:
    first = ask(world.url, call)
    assert first.is_success, first.text
    before = len(world.bodies)
    again = ask(world.url, call)
    assert (again.status_code, again.json()) == (first.status_code, first.json())
    assert len(world.bodies) == before


def test_without_a_key_each_is_done(world: World) -> None:
    for _ in range(2):
        assert ask(world.url, FEEDBACK, accept="*/*").is_success
    assert len(world.of(Feedback)) == 2
    assert not any(is_requested(one.event_id) for one in world.envelopes)


def test_another_content_under_the_same_key_is_refused_and_names_the_field(
    world: World,
) -> None:
    pairs: list[tuple[Call, Call]] = [
        (PUT, (PUT[0], {**PUT[1], "tags": ["u"]})),
        (PUT, (PUT[0], {**PUT[1], "ttl_s": 7})),
        (PUT, FEEDBACK),
        (INVALIDATE, (INVALIDATE[0], {**INVALIDATE[1], "value": "u"})),
        (FEEDBACK, (FEEDBACK[0], {**JUDGED, "verdict": "right"})),
    ]
    for number, (call, other) in enumerate(pairs):
        key = {"Idempotency-Key": f"pair {number}"}
        assert ask(world.url, call, **key).is_success
        before = len(world.bodies)
        answer = ask(world.url, other, **key)
        assert answer.status_code == 422, (call, other)
        assert answer.json()["error"]["param"] == "Idempotency-Key"
        assert len(world.bodies) == before


def test_what_was_undone_since_is_not_done_again(world: World) -> None:
    first = ask(world.url, PUT)
    assert ask(world.url, INVALIDATE, accept="*/*").is_success
    wait_until(lambda: folded(world))
    assert ask(world.url, PUT).json() == first.json()
    assert entry(world, first).status_code == 404


def test_two_workers_that_are_asked_at_once_do_it_once(
    world: World, upstream_url: str
) -> None:
    """Each writes an event, since neither sees the other's: the fold takes one."""
    put = ask(world.url, PUT, accept="*/*")
    key = put.json()["key"]
    wait_until(lambda: entry(world, put).status_code == 200)
    judged: Call = (FEEDBACK[0], {**JUDGED, "key": key})
    with ExitStack() as more:
        urls = [world.url]
        for _ in range(2):
            urls.append(more.enter_context(another_worker(world, upstream_url)))
        world.fold.pause()
        with ThreadPoolExecutor(6) as pool:
            asked = [pool.submit(ask, url, judged) for url in urls * 2]
            wait_until(lambda: len(world.of(Feedback)) == 6)
            world.fold.resume()
            answers = [each.result() for each in asked]
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["lsn"] for answer in answers}) == 1
    assert entry(world, put).json()["wrong"] == 1


def test_of_two_contents_at_once_the_second_is_refused(world: World) -> None:
    other: Call = (PUT[0], {**PUT[1], "tags": ["u"]})
    world.fold.pause()
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(ask, world.url, call) for call in (PUT, other)]
        wait_until(lambda: len(world.of(Stored)) == 2)
        world.fold.resume()
        answers = [each.result() for each in asked]
    assert sorted(answer.status_code for answer in answers) == [201, 422]
    done = next(answer for answer in answers if answer.is_success)
    (tag,) = world.of(Stored)[0].tags
    assert entry(world, done).json()["tags"] == [tag]


def test_what_is_not_folded_in_time_is_to_be_asked_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(once, "FOLD_WAIT_S", 0.2)
    world.fold.pause()
    answer = ask(world.url, INVALIDATE)
    assert answer.status_code == 503
    assert "same Idempotency-Key" in answer.json()["error"]["message"]
    world.fold.resume()
    assert ask(world.url, INVALIDATE).is_success
    # The copy, where there is one, has no effect.
    assert len(world.of(Invalidated)) <= 2


def test_a_key_that_is_none_is_refused(world: World) -> None:
    where = f"{world.url}/v1/cachemind/feedback"
    for key in ("", '""', "x" * 256, "k\xe4se"):
        headers = {b"Idempotency-Key": key.encode("latin-1")}
        answer = httpx.post(where, json=JUDGED, headers=headers)
        assert answer.status_code == 400, key
        assert answer.json()["error"]["param"] == "Idempotency-Key"
    assert world.of(Feedback) == []


def test_the_same_key_of_another_caller_is_another_request(upstream_url: str) -> None:
    ring = KeyRing()
    for name in ("one", "two"):
        ring.issue(name, Role.CACHE_WRITER, "shop")
    with gateway(upstream_url, access=Access()) as world:
        ring.publish(world)
        wait_for_key(world, ring.texts["two"])
        for name in ("one", "two"):
            mine = {**KEY, "X-CacheMind-Key": ring.texts[name]}
            assert ask(world.url, FEEDBACK, **mine).is_success
            assert ask(world.url, FEEDBACK, **mine).is_success
        assert len(world.of(Feedback)) == 2
