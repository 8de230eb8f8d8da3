"""The client library over HTTP, blocking and not, against a gateway."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cachemind.client import (
    AsyncCacheMind,
    CacheMind,
    Conflict,
    Control,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    NotOffered,
    Patience,
    RollbackGoal,
    RollbackState,
    Selector,
    TooMany,
)
from cachemind.core.access import Role
from cachemind.core.token_bucket import Rate
from cachemind.events import Feedback, Invalidated, Outcome, RolledBack, Stored, Verdict
from cachemind_services.gateway.deps import Access
from cachemind_services.gateway.limits import Limits
from tests.access_host import KeyRing, wait_for_key
from tests.client_bench import Asked, asked
from tests.gateways import World, folded, gateway
from tests.upstreams import (
    ScriptedUpstream,
    completion,
    served,
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
    with pytest.raises(NotFound, match="to_version") as never:
        cache.rollback(RollbackGoal(to_version=99))
    assert (never.value.status, never.value.code) == (422, "unknown_version")
    assert [event.reason for event in world.of(RolledBack)] == ["poisoned", ""]


def _uuid(raw: bytes) -> Any:
    from uuid import UUID

    return UUID(bytes=raw)


def test_receipts_that_nobody_keeps_are_no_answer(cache: Asked) -> None:
    with pytest.raises(NotOffered, match="501: no receipts are kept here") as raised:
        cache.receipt("ab" * 16)
    assert (raised.value.status, raised.value.code) == (501, "not_offered")


def test_another_namespace_than_the_one_there_is_is_not_answered_from_it(
    world: World, make: Make
) -> None:
    with asked(make, world.url, namespace="elsewhere") as cache:
        with pytest.raises(NotAllowed, match="namespace shop alone") as raised:
            cache.put(MODEL, says("eight?"), "8")
        assert raised.value.field == "namespace"
        with pytest.raises(NotAllowed):
            cache.complete(MODEL, says("eight?"))
    assert world.bodies == []
    with asked(make, world.url, namespace="shop") as cache:
        assert cache.lookup(MODEL, says("eight?")) is None


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
