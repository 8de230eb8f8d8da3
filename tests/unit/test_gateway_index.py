"""The vector index, the semantic tier's deadline, and the follower of the store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from cachemind.adapters.memory_embedder import MemoryEmbedder
from cachemind.adapters.memory_store import MemoryStore, MemoryView
from cachemind.core.working_set import WorkingSet
from cachemind.errors import EmbeddingUnavailable, LogUnavailable, StoreUnavailable
from cachemind.events import Body, Evicted, Stored
from cachemind.ports import Change, StoreView
from cachemind.types import (
    ContextKey,
    EncoderId,
    EventId,
    ExactKey,
    Lsn,
    Namespace,
    Offset,
    Partition,
)
from cachemind_services.gateway.follower import Follower, Freshness
from cachemind_services.gateway.metrics import GatewayMetrics
from cachemind_services.gateway.partition_follower import PartitionFollower
from cachemind_services.gateway.semantic import Encoder, SemanticTier
from cachemind_services.gateway.vector_index import HeldContexts, VectorIndex
from tests.unit.test_gateway_parts import SHOP, envelope, stored

EMBEDDER = MemoryEmbedder()
ONE = ContextKey(b"\1" * 32)
TWO = ContextKey(b"\2" * 32)
TEXTS = ("red apples and pears", "a red apple and a pear", "blue whales in the sea")


def vector(text: str) -> bytes:
    found = EMBEDDER.embed(text)
    assert found is not None
    return found


def entry(number: int, text: str, context: ContextKey = ONE) -> Stored:
    return replace(
        stored(number), context_key=context, embedding=vector(text), prompt=text
    )


class Folded:
    """A memory store that events are folded into one by one."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.view = self.store.view()
        self._next = 0

    def fold(self, *bodies: Body) -> None:
        for body in bodies:
            working = WorkingSet(
                lambda name: (self.store.namespace(name), self.store.reader(name))
            )
            event = replace(
                envelope(body), event_id=EventId(self._next.to_bytes(16, "big"))
            )
            lsn = Lsn(Partition(0), Offset(self._next))
            working.apply(event, lsn)
            self.store.commit(lsn.offset, working.steps())
            self._next += 1

    def index(self, rows: int = 1_000) -> VectorIndex:
        self.view.catch_up()
        held = HeldContexts(rows)
        return VectorIndex(self.view, SHOP, EMBEDDER.dimensions, held)


def near(index: VectorIndex, text: str, context: ContextKey = ONE) -> list[bytes]:
    found = index.near(context, vector(text), 0.5, 8)
    return [each.key for each in found]


def keys(*numbers: int) -> list[bytes]:
    return [stored(number).exact_key for number in numbers]


def test_only_the_asked_context_is_searched_closest_first() -> None:
    folded = Folded()
    folded.fold(
        entry(0, TEXTS[0]),
        entry(1, TEXTS[1]),
        entry(2, TEXTS[0], TWO),
        entry(3, TEXTS[2]),
    )
    index = folded.index()
    assert near(index, TEXTS[0]) == keys(0, 1)
    assert near(index, TEXTS[0], TWO) == keys(2)
    assert near(index, TEXTS[0], ContextKey(bytes(32))) == []


def test_the_index_follows_the_journal() -> None:
    folded = Folded()
    folded.fold(entry(0, TEXTS[0]))
    index = folded.index()
    assert near(index, TEXTS[0]) == keys(0)
    before = folded.view.applied()
    gone = Evicted(keys=(stored(0).exact_key,), reason="r")
    folded.fold(entry(1, TEXTS[1]), entry(2, TEXTS[2]), gone)
    folded.view.catch_up()
    index.refresh(folded.view.changes_since(before))
    assert near(index, TEXTS[0]) == keys(1)
    assert near(index, TEXTS[2]) == keys(2)


def test_an_index_that_fell_behind_is_read_anew() -> None:
    folded = Folded()
    folded.fold(entry(0, TEXTS[0]))
    index = folded.index()
    assert near(index, TEXTS[2]) == []
    folded.fold(entry(2, TEXTS[2]))
    folded.view.catch_up()
    index.refresh(None)
    assert near(index, TEXTS[2]) == keys(2)


def test_an_own_entry_is_found_before_the_store_has_it() -> None:
    folded = Folded()
    index = folded.index()
    assert near(index, TEXTS[0]) == []
    index.put(ONE, ExactKey(stored(5).exact_key), vector(TEXTS[0]))
    assert near(index, TEXTS[0]) == keys(5)
    index.put(ONE, ExactKey(stored(5).exact_key), vector(TEXTS[2]))
    assert near(index, TEXTS[0]) == []


def test_the_least_recently_used_contexts_leave_memory() -> None:
    folded = Folded()
    contexts = [ContextKey(bytes([number]) * 32) for number in range(10)]
    folded.fold(*(entry(n, TEXTS[0], each) for n, each in enumerate(contexts)))
    index = folded.index(rows=6)
    for number, context in enumerate(contexts):
        assert near(index, TEXTS[0], context) == keys(number)
    index.put(contexts[0], ExactKey(stored(77).exact_key), vector(TEXTS[0]))
    assert near(index, TEXTS[0], contexts[0]) == keys(0)
    index.put(contexts[9], ExactKey(stored(99).exact_key), vector(TEXTS[0]))
    assert set(near(index, TEXTS[0], contexts[9])) == set(keys(9, 99))


class Failing:
    """An `Embedder` that blocks or fails as told."""

    encoder_id = EncoderId("failing")
    dimensions = EMBEDDER.dimensions

    def __init__(self) -> None:
        self.block = threading.Event()
        self.block.set()
        self.fail = False
        self.calls = 0

    def embed(self, text: str) -> bytes | None:
        self.calls += 1
        self.block.wait(5)
        if self.fail:
            raise EmbeddingUnavailable("broken")
        return EMBEDDER.embed(text)


def tier(embedder: Failing, deadline_s: float = 5.0) -> tuple[SemanticTier, Encoder]:
    encoder = Encoder(
        embedder, GatewayMetrics(), deadline_s=deadline_s, limit_rows=1_000
    )
    return SemanticTier(encoder, Folded().index(), 8), encoder


async def test_a_slow_encoder_costs_its_deadline_and_then_nothing() -> None:
    embedder = Failing()
    embedder.block.clear()
    semantic, encoder = tier(embedder, deadline_s=0.02)
    for _ in range(10):
        assert await semantic.find("x", ONE, 0.9) is None
    # Three late ones open the breaker; those that queued up are not worked on.
    assert embedder.calls == 1
    embedder.block.set()
    encoder.close()


async def test_a_failing_encoder_is_no_candidates() -> None:
    embedder = Failing()
    embedder.fail = True
    semantic, encoder = tier(embedder)
    for _ in range(10):
        assert await semantic.find("x", ONE, 0.9) is None
    assert embedder.calls == 3
    encoder.close()


async def test_text_past_the_window_has_no_vector() -> None:
    semantic, encoder = tier(Failing())
    found = await semantic.find("word " * 300, ONE, 0.9)
    assert found is not None
    assert found.vector is None
    assert found.near == ()
    encoder.close()


# ---- follower -----------------------------------------------------------------------


class Broken(MemoryView):
    """A view whose store can go away."""

    away = False

    def catch_up(self) -> Offset:
        if self.away:
            raise StoreUnavailable("gone")
        return super().catch_up()


class Ends:
    """What the log says of its end."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.away = False

    def __call__(self) -> Mapping[Partition, Offset]:
        if self.away:
            raise LogUnavailable("away")
        return {Partition(0): Offset(self.end)}


def follower(view: StoreView, ends: Ends, seen: list[Freshness]) -> Follower:
    line = PartitionFollower(view, Partition(0), ends)
    return Follower(line, SHOP, seen.append)


async def until(holds: object) -> None:
    assert callable(holds)
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.001)


async def test_a_follower_shows_each_commit_with_its_changes() -> None:
    folded, seen = Folded(), list[Freshness]()
    following = follower(folded.view, Ends(0), seen)
    await following.start()
    await until(lambda: seen)
    folded.fold(entry(0, TEXTS[0]))
    assert await following.folded(Offset(0), 5)
    changes: Sequence[Change] | None = seen[-1].changes
    assert [each.exact_key for each in changes or ()] == keys(0)
    assert following.state.version == 1
    assert not await following.folded(Offset(9), 0.01)
    await following.stop()


async def test_a_follower_is_ready_once_it_shows_what_the_log_held() -> None:
    folded, seen, ends = Folded(), list[Freshness](), Ends(2)
    following = follower(folded.view, ends, seen)
    assert (following.not_ready or "").startswith("the store was not read")
    await following.start()
    folded.fold(entry(0, TEXTS[0]))
    await until(lambda: following.not_ready == "the store is at 0 of 1")
    folded.fold(entry(1, TEXTS[1]))
    await until(lambda: following.not_ready is None)
    ends.end = 100
    await until(lambda: following.not_ready is None)
    await following.stop()


async def test_a_store_that_goes_away_is_said_and_comes_back() -> None:
    view, seen = Broken(MemoryStore()), list[Freshness]()
    view.away = True
    following = follower(view, Ends(0), seen)
    await following.start()
    await until(lambda: "gone" in (following.not_ready or ""))
    view.away = False
    await until(lambda: following.not_ready is None)
    await following.stop()


@pytest.mark.parametrize("namespace", ["shop", "other"])
def test_changes_of_other_namespaces_do_not_touch_the_index(namespace: str) -> None:
    folded = Folded()
    folded.fold(entry(0, TEXTS[0]))
    index = folded.index()
    assert near(index, TEXTS[0]) == keys(0)
    change = Change(
        namespace=Namespace(namespace),
        context_key=ONE,
        exact_key=ExactKey(stored(0).exact_key),
        present=False,
    )
    index.refresh([change])
    assert near(index, TEXTS[0]) == ([] if namespace == "shop" else keys(0))
