"""The client library over HTTP, blocking and not, against a gateway."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cachemind.client import (
    AsyncCacheMind,
    CacheMind,
    CallFailed,
    Conflict,
    Control,
    NoCache,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    NotValid,
    Patience,
    RollbackGoal,
    RollbackState,
    Selector,
    StreamCut,
    TooMany,
    Unavailable,
)
from cachemind.core.access import Role
from cachemind.core.token_bucket import Rate
from cachemind.events import Feedback, Invalidated, Outcome, RolledBack, Stored, Verdict
from cachemind_services.gateway.deps import Access
from cachemind_services.gateway.limits import Limits
from tests.access_host import KeyRing, wait_for_key
from tests.bench.running import free_port
from tests.client_bench import Asked, asked
from tests.gateways import World, folded, gateway
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

SHOP = "shop"
MODEL = "m"
QUICK = Patience(retries=2, first_s=0.01, most_s=0.05)
Make = Callable[..., CacheMind | AsyncCacheMind]


def says(question: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": question}]


@pytest.fixture
def upstream() -> ScriptedUpstream:
    return ScriptedUpstream()


@pytest.fixture
def world(upstream: ScriptedUpstream) -> Iterator[World]:
    with served(upstream) as url, gateway(url) as world:
        yield world


@pytest.fixture(params=[CacheMind, AsyncCacheMind], ids=["blocking", "async"])
def make(request: pytest.FixtureRequest) -> Make:
    found: Make = request.param
    return found


@pytest.fixture
def cache(world: World, make: Make) -> Iterator[Asked]:
    with asked(make, world.url, patience=QUICK) as found:
        yield found


def test_a_completion_is_upstreams_and_then_the_caches(
    world: World, cache: Asked, upstream: ScriptedUpstream
) -> None:
    first = cache.complete(MODEL, says("one?"), temperature=0)
    again = cache.complete(MODEL, says("one?"), temperature=0)
    assert (first.outcome, again.outcome) == (Outcome.MISS, Outcome.HIT_EXACT)
    assert again.text == first.text == upstream_text("one?")
    assert again.completion == first.completion
    assert first.key is None
    assert again.key == world.of(Stored)[0].exact_key.hex()
    assert again.lsn is not None
    assert again.trace_id != first.trace_id
    assert len(upstream.received) == 1


def upstream_text(question: str) -> str:
    request = {"model": MODEL, "messages": says(question)}
    found: str = completion(request)["choices"][0]["message"]["content"]
    return found


def test_a_look_up_asks_nobody_else(cache: Asked, upstream: ScriptedUpstream) -> None:
    assert cache.lookup(MODEL, says("two?")) is None
    cache.complete(MODEL, says("two?"))
    found = cache.lookup(MODEL, says("two?"))
    assert found is not None
    assert found.outcome is Outcome.HIT_EXACT
    assert len(upstream.received) == 1
    assert cache.lookup(MODEL, says("two?"), control=Control(refresh=True)) is None


@pytest.mark.parametrize("hit", [False, True], ids=["miss", "hit"])
def test_a_stream_comes_in_parts_that_join_to_the_answer(
    cache: Asked, hit: bool
) -> None:
    if hit:
        cache.complete(MODEL, says("three?"))
    head, parts, answer = cache.stream(MODEL, says("three?"))
    assert head.outcome is (Outcome.HIT_EXACT if hit else Outcome.MISS)
    assert len(parts) > 3
    assert "".join(part.text for part in parts) == upstream_text("three?")
    assert answer.text == upstream_text("three?")
    assert answer.trace_id == head.trace_id
    assert answer.completion["object"] == "chat.completion"


def test_what_is_put_is_served_with_its_tags_and_life(
    world: World, cache: Asked
) -> None:
    done = cache.put(MODEL, says("four?"), "four.", ttl_s=60, tags=["even"])
    assert done.ttl_ms == 60_000
    found = cache.lookup(MODEL, says("four?"))
    assert found is not None
    assert (found.text, found.key) == ("four.", done.key)
    (stored,) = world.of(Stored)
    assert (stored.exact_key.hex(), stored.tags) == (done.key, ("even",))
    whole = dict(found.completion) | {"id": "mine"}
    cache.put(MODEL, says("four!"), whole)
    other = cache.lookup(MODEL, says("four!"))
    assert other is not None
    assert other.completion["id"] == "mine"


@pytest.mark.parametrize(
    "selector",
    [
        Selector(tag="odd"),
        Selector(model=MODEL),
        Selector(prefix="five"),
        Selector(everything=True),
    ],
    ids=["tag", "model", "prefix", "everything"],
)
def test_what_is_invalidated_is_served_no_more(
    world: World, cache: Asked, selector: Selector
) -> None:
    cache.put(MODEL, says("five?"), "five.", tags=["odd"])
    lsn = cache.invalidate(selector, reason="because")
    assert cache.lookup(MODEL, says("five?")) is None
    (event,) = world.of(Invalidated)
    assert event.reason == "because"
    assert lsn.offset >= 0


def test_feedback_is_about_the_answer_that_was_served(
    world: World, cache: Asked
) -> None:
    cache.put(MODEL, says("six?"), "sex.")
    found = cache.lookup(MODEL, says("six?"))
    assert found is not None
    assert found.key is not None
    cache.feedback(found.key, found.trace_id, right=False)
    (said,) = world.of(Feedback)
    assert said.matched_key.hex() == found.key
    assert said.served_trace_id.hex() == found.trace_id
    assert said.verdict is Verdict.WRONG


def test_a_rollback_is_rehearsed_done_refused_and_undone(
    world: World, cache: Asked
) -> None:
    for number in range(3):
        cache.put(MODEL, says(f"seven {number}?"), "7")
    wait_until(lambda: folded(world))
    to_one = RollbackGoal(to_version=1)
    dry = cache.rollback(to_one, dry_run=True)
    assert (dry.status, dry.removed, dry.new_version) == (
        RollbackState.DRY_RUN,
        2,
        None,
    )
    with pytest.raises(Conflict) as refused:
        cache.rollback(to_one, expected_head=2)
    assert (refused.value.status, refused.value.code) == (409, "wrong_head")
    done = cache.rollback(to_one, expected_head=3, reason="poisoned")
    assert (done.status, done.new_version) == (RollbackState.COMMITTED, 4)
    assert done.digest == dry.digest
    assert cache.lookup(MODEL, says("seven 2?")) is None
    undone = cache.rollback(RollbackGoal(undo=str(_uuid(done.rollback_id))))
    assert (undone.to_version, undone.new_version) == (3, 5)
    assert cache.lookup(MODEL, says("seven 2?")) is not None
    with pytest.raises(CallFailed) as unknown:
        cache.rollback(RollbackGoal(to_version=99))
    assert unknown.value.status in (400, 404, 422)
    assert [event.reason for event in world.of(RolledBack)] == ["poisoned", ""]


def _uuid(raw: bytes) -> Any:
    from uuid import UUID

    return UUID(bytes=raw)


def test_receipts_that_nobody_keeps_are_no_answer(cache: Asked) -> None:
    with pytest.raises(CallFailed) as raised:
        cache.receipt("ab" * 16)
    assert raised.value.status == 501


def test_control_tightens_what_policy_allows(
    cache: Asked, upstream: ScriptedUpstream
) -> None:
    cache.complete(MODEL, says("eight?"), control=Control(store=False))
    assert cache.lookup(MODEL, says("eight?")) is None
    cache.complete(MODEL, says("eight?"))
    off = cache.complete(MODEL, says("eight?"), control=Control(off=True))
    assert off.outcome is Outcome.BYPASS
    fresh = cache.complete(MODEL, says("eight?"), control=Control(refresh=True))
    assert fresh.outcome is Outcome.MISS
    assert len(upstream.received) == 4
    old = Control(max_age_s=0, threshold=0.99, ttl_s=5, exact=True)
    assert cache.lookup(MODEL, says("eight?"), control=old) is None


# ---- who asks -----------------------------------------------------------------------


def test_a_credential_says_who_asks_and_upstream_sees_its_own(
    make: Make, upstream: ScriptedUpstream
) -> None:
    ring = KeyRing()
    writer = ring.issue("writer", Role.CACHE_WRITER, SHOP, "bank")
    reader = ring.issue("reader", Role.CACHE_READER, SHOP)
    with served(upstream) as url, gateway(url, access=Access()) as world:
        ring.publish(world)
        wait_for_key(world, writer)
        with asked(make, world.url) as nobody, pytest.raises(NotAuthenticated):
            nobody.lookup(MODEL, says("who?"))
        with asked(
            make, world.url, key=writer, namespace=SHOP, upstream_key="sk-mine"
        ) as mine:
            mine.complete(MODEL, says("who?"))
            assert upstream.received[-1].header("authorization") == "Bearer sk-mine"
            assert upstream.received[-1].header("x-cachemind-key") is None
            assert writer not in repr(mine.client)
        with asked(make, world.url, key=reader, upstream_key="sk-mine") as other:
            assert other.lookup(MODEL, says("who?")) is not None
            with pytest.raises(NotAllowed, match="invalidate") as refused:
                other.invalidate(Selector(everything=True))
            assert refused.value.status == 403
            assert reader not in str(refused.value)


def test_who_asks_too_often_waits_as_told_and_then_is_told(
    make: Make, upstream: ScriptedUpstream
) -> None:
    ring = KeyRing()
    key = ring.issue("writer", Role.CACHE_WRITER, SHOP)
    limits = Limits(rate=Rate(per_s=1.0, burst=2.0))
    access = Access(limits=limits)
    with served(upstream) as url, gateway(url, access=access) as world:
        ring.publish(world)
        wait_for_key(world, key)
        with asked(make, world.url, key=key, patience=QUICK) as cache:
            began = time.monotonic()
            for _ in range(3):
                cache.lookup(MODEL, says("nine?"))
            assert time.monotonic() - began > 0.5, "it did not wait"
            # Who has no time to wait is told how long it would be.
            told = too_many(lambda: cache.lookup(MODEL, says("9?"), timeout_s=0.3))
            assert told.retry_after_s >= 1


def too_many(ask: Callable[[], object]) -> TooMany:
    for _ in range(9):
        try:
            ask()
        except TooMany as error:
            return error
    raise AssertionError("nobody was held back")


# ---- what goes wrong ----------------------------------------------------------------


def test_nobody_there_is_unavailable_and_was_asked_in_vain(make: Make) -> None:
    with asked(make, f"http://127.0.0.1:{free_port()}", patience=QUICK) as cache:
        with pytest.raises(Unavailable) as raised:
            cache.complete(MODEL, says("ten?"))
        assert raised.value.sent is False


def test_a_gateway_that_hangs_is_given_up_in_time(make: Make) -> None:
    with (
        served(_silent) as url,
        asked(make, url, patience=QUICK) as cache,
    ):
        for ask in (cache.complete, cache.lookup):
            began = time.monotonic()
            with pytest.raises(Unavailable) as raised:
                ask(MODEL, says("ten?"), timeout_s=0.5)
            assert raised.value.sent is True
            assert time.monotonic() - began < 3


@pytest.mark.parametrize(
    ("status", "headers", "body", "error", "sent"),
    [
        (503, {"retry-after": "0"}, b'{"error":{"message":"x"}}', Unavailable, False),
        (500, {}, b"oops", Unavailable, True),
        (404, {}, b'{"error":{"message":"x","code":"not_found"}}', NotFound, None),
        (422, {}, b'{"error":{"message":"x","param":"kind"}}', NotValid, None),
        (302, {"location": "http://127.0.0.1:1/"}, b"", NoCache, None),
        (200, {}, b"{}", NoCache, None),
        (200, {"x-cachemind-outcome": "miss"}, b"<html>", NoCache, None),
    ],
)
def test_an_answer_that_is_none_says_what_it_is(
    make: Make,
    status: int,
    headers: dict[str, str],
    body: bytes,
    error: type[CallFailed],
    sent: bool | None,
) -> None:
    server = Canned(status, headers, body)
    with served(server) as url, asked(make, url, patience=QUICK) as cache:
        with pytest.raises(error) as raised:
            cache.complete(MODEL, says("ten?"))
        if isinstance(raised.value, Unavailable):
            assert raised.value.sent is sent
        # Only what was surely not begun is begun again.
        assert server.calls == (3 if sent is False else 1)
        with pytest.raises(error):
            cache.stream(MODEL, says("ten?"))


def test_what_may_be_done_twice_is_tried_again_and_feedback_is_not(
    make: Make,
) -> None:
    server = Canned(500, {}, b"")
    with served(server) as url, asked(make, url, patience=QUICK) as cache:
        with pytest.raises(Unavailable):
            cache.put(MODEL, says("ten?"), "10")
        assert server.calls == 3
        with pytest.raises(Unavailable):
            cache.feedback("ab" * 32, "cd" * 16, right=True)
        assert server.calls == 4


def test_a_rollback_that_is_sent_again_has_the_same_id(make: Make) -> None:
    server = Canned(500, {}, b"")
    with (
        served(server) as url,
        asked(make, url, patience=QUICK) as cache,
        pytest.raises(Unavailable),
    ):
        cache.rollback(RollbackGoal(to_version=1))
    assert len(server.queries) == 3
    assert len(set(server.queries)) == 1
    assert b"rollback_id=" in server.queries[0]


@pytest.mark.parametrize("how", ["cut", "error", "noise"])
def test_a_stream_that_breaks_off_is_no_answer(
    world: World, cache: Asked, upstream: ScriptedUpstream, how: str
) -> None:
    upstream.behaviour = breaking(how)
    with pytest.raises(StreamCut):
        cache.stream(MODEL, says(f"{how}?"))


def breaking(how: str) -> Callable[[Received, Send], Any]:
    async def behave(received: Received, send: Send) -> None:
        frames = sse(completion(received.json), include_usage=False)
        await start(send, 200, b"text/event-stream")
        for frame in frames[:3]:
            await piece(send, frame)
        if how == "error":
            await piece(send, b'data: {"error":{"message":"x"}}\n\n')
        if how == "noise":
            await piece(send, b"data: {noise\n\n")
        await piece(send, b"", more=False)

    return behave


def test_an_upstream_that_never_streams_is_taken_whole(
    cache: Asked, upstream: ScriptedUpstream
) -> None:
    async def whole(received: Received, send: Send) -> None:
        await start(send, 200, b"application/json")
        answer = completion({**received.json, "stream": False})
        await piece(send, json.dumps(answer).encode(), more=False)

    upstream.behaviour = whole
    _, parts, answer = cache.stream(MODEL, says("eleven?"))
    assert "".join(part.text for part in parts) == upstream_text("eleven?")
    assert answer.text == upstream_text("eleven?")


class Canned:
    """An ASGI app that answers everything the same, or nothing at all."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self._status = status
        self._headers = [(n.encode(), v.encode()) for n, v in headers.items()]
        self._body = body
        self.calls = 0
        self.queries: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        self.calls += 1
        self.queries.append(scope["query_string"])
        await start(send, self._status, b"application/json", self._headers)
        await piece(send, self._body, more=False)


async def _silent(scope: Any, receive: Any, send: Send) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
