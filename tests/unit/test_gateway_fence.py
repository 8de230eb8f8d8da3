"""What the request path does with fences, quarantines and changes of timeline."""

from __future__ import annotations

import threading
import timeit
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from cachemind.adapters.doorbell import Doorbell
from cachemind.adapters.memory_store import MemoryStore
from cachemind.core.partitioner import partition_of
from cachemind.core.rollback_report import (
    NO_BASE,
    RollbackReport,
    RollbackStatus,
    Strategy,
)
from cachemind.core.state import Effect, NamespaceState, Step
from cachemind.events import Outcome, Stored
from cachemind.types import (
    FIRST_TIMELINE,
    EventId,
    Lsn,
    Offset,
    Partition,
    Timeline,
    Version,
)
from cachemind_services.gateway import parts
from cachemind_services.gateway.overlay import Overlay
from tests.gateways import NAMESPACE, PARTITIONS, World, folded, gateway
from tests.upstreams import ScriptedUpstream, completion, served, wait_until
from tests.wal_events import envelope, exact_key, stored

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "Why is that so?"}],
}


@dataclass(frozen=True)
class Shop:
    """A gateway that has one entry, and the store behind it."""

    world: World
    upstream: ScriptedUpstream

    @property
    def store(self) -> MemoryStore:
        partition = partition_of(NAMESPACE.encode(), PARTITIONS)
        return self.world.fold.stores[partition]

    def ask(self) -> httpx.Response:
        return httpx.post(self.world.url + CHAT, json=BODY)

    def outcome(self) -> str:
        return self.ask().headers["x-cachemind-outcome"]


@pytest.fixture
def shop() -> Iterator[Shop]:
    upstream = ScriptedUpstream()
    with served(upstream) as url, gateway(url) as world:
        shop = Shop(world, upstream)
        assert shop.outcome() == "miss"
        assert shop.outcome() == "hit_exact"
        wait_until(lambda: shop.store.namespace(NAMESPACE).entries == 1)
        yield shop


def test_nothing_is_served_until_the_store_shows_the_fence(shop: Shop) -> None:
    ahead = Offset(shop.store.applied() + 3)
    shop.store.fence(NAMESPACE, ahead)
    assert shop.outcome() == "miss"
    wait_until(lambda: shop.outcome() == "hit_exact")
    assert shop.store.applied() >= ahead


def test_what_waits_for_the_fold_is_not_served_past_a_fence_either(shop: Shop) -> None:
    shop.world.fold.pause()
    other = {**BODY, "model": "other"}
    url = shop.world.url + CHAT
    assert httpx.post(url, json=other).headers["x-cachemind-outcome"] == "miss"
    assert httpx.post(url, json=other).headers["x-cachemind-outcome"] == "hit_exact"
    shop.store.fence(NAMESPACE, Offset(10**6))
    assert httpx.post(url, json=other).headers["x-cachemind-outcome"] == "miss"


def test_a_hit_that_a_rollback_overtook_while_the_log_took_it_is_a_miss(
    shop: Shop,
) -> None:
    asked = len(shop.upstream.chats)
    shop.world.log.hold()
    found: list[httpx.Response] = []
    client = threading.Thread(target=lambda: found.append(shop.ask()))
    client.start()
    wait_until(lambda: shop.world.log.held == 1)  # the look-up is over
    shop.store.fence(NAMESPACE, Offset(shop.store.applied()))
    shop.world.log.release()
    client.join()
    assert found[0].headers["x-cachemind-outcome"] == "miss"
    assert "detail=rolled-back" in found[0].headers["cache-status"]
    assert len(shop.upstream.chats) == asked + 1
    outcomes = [(read.outcome, read.reason) for read in shop.world.reads]
    assert outcomes[-2:] == [(Outcome.HIT_EXACT, ""), (Outcome.MISS, "rolled-back")]


def test_what_is_put_waits_for_a_rollback_that_would_void_it(shop: Shop) -> None:
    # What was asked before is a record as well, and must not be the one waited for.
    wait_until(lambda: folded(shop.world))
    ahead = Offset(shop.store.applied() + 1)
    shop.store.fence(NAMESPACE, ahead)
    entry = {"request": BODY, "response": completion(BODY)}
    url = shop.world.url + "/v1/cachemind/entries"
    refused = httpx.post(url, json=entry)
    assert refused.status_code == 503
    assert "rollback" in refused.json()["error"]["message"]
    assert shop.outcome() == "miss"  # its record is what the fence waits for
    wait_until(lambda: shop.store.applied() >= ahead)
    assert httpx.post(url, json=entry).status_code == 201


def test_a_store_that_stands_still_behind_the_log_is_not_served_from(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "STALE_S", 0.2)
    wait_until(lambda: folded(shop.world))
    assert shop.outcome() == "hit_exact"
    shop.world.fold.pause()
    wait_until(lambda: shop.outcome() == "bypass")
    assert "detail=store-late" in shop.ask().headers["cache-status"]
    shop.world.fold.resume()
    wait_until(lambda: shop.outcome() == "hit_exact")


def test_a_quarantined_namespace_is_bypassed_and_stores_nothing(shop: Shop) -> None:
    wait_until(lambda: folded(shop.world))
    applied = Offset(shop.store.applied() + 1)
    shop.world.log.leave_gap(partition_of(NAMESPACE.encode(), PARTITIONS))
    shop.store.fence(NAMESPACE, applied)
    shop.store.commit(applied, {NAMESPACE: [quarantining(applied)]})
    wait_until(lambda: shop.outcome() == "bypass")
    answer = shop.ask()
    assert "fwd=bypass" in answer.headers["cache-status"]
    assert "detail=quarantined" in answer.headers["cache-status"]
    assert len(shop.world.of(Stored)) == 1
    assert "cachemind_quarantined 1.0" in httpx.get(shop.world.url + "/metrics").text


def test_an_own_entry_of_a_timeline_that_was_left_is_forgotten() -> None:
    overlay = Overlay(10_000)
    event = envelope(1, stored(1), NAMESPACE)
    overlay.add(
        event, Lsn(Partition(0), Offset(5)), NamespaceState(namespace=NAMESPACE)
    )
    overlay.rebase(FIRST_TIMELINE)
    assert overlay.raw_entry(exact_key(1)) is not None
    overlay.rebase(Timeline(7))
    assert overlay.raw_entry(exact_key(1)) is None
    assert overlay.held_bytes == 0


def test_asking_for_the_fence_costs_less_than_a_microsecond(tmp_path: Path) -> None:
    bell = Doorbell(tmp_path, owner=True)
    bell.fence(NAMESPACE, Offset(41))
    rounds = 20_000
    best_s = min(timeit.repeat(lambda: bell.fenced_at(NAMESPACE), number=rounds))
    bell.close()
    assert best_s / rounds < 1e-6


def quarantining(offset: Offset) -> Step:
    """Return the step of a rollback at `offset` that could not be validated."""
    state = NamespaceState(namespace=NAMESPACE)
    report = RollbackReport(
        rollback_id=EventId(bytes(16)),
        namespace=NAMESPACE,
        offset=offset,
        status=RollbackStatus.QUARANTINED,
        from_version=Version(1),
        to_version=Version(0),
        new_version=Version(2),
        restored=0,
        removed=0,
        changed=0,
        replayed=0,
        base=NO_BASE,
        digest=0,
        strategy=Strategy.FIELD_HASH,
        verdict="test",
        duration_ms=1,
        reason="test",
    )
    return Step(
        effect=Effect.NO_CHANGE,
        state=state,
        entries={},
        hits={},
        version_row=None,
        removed_contexts={},
        report=report,
    )
