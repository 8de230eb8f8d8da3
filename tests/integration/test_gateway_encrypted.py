"""An encrypted namespace through the real client: hits as ever, nothing readable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest

from cachemind.adapters.memory_data_keys import MemoryDataKeys
from cachemind.agents.erasure import erase
from cachemind.core.operation import hash_of
from cachemind.core.partitioner import partition_of
from cachemind.errors import KeyUnavailable
from cachemind.events import Invalidated, KeyShredded, Outcome, Stored
from cachemind.types import Lsn
from tests.gateways import NAMESPACE, PARTITIONS, World, another_worker, folded, gateway
from tests.payload_hosts import KeyHost
from tests.upstreams import ScriptedUpstream, served, wait_until

MARKER = "zebrafinch"
QUESTION = (
    f"How do I parse {MARKER} JSON in Python without losing the order of its keys?"
)
CLOSE = (
    f"How do I parse a {MARKER} JSON in Python without losing the order of its keys?"
)


@pytest.fixture
def upstream() -> ScriptedUpstream:
    return ScriptedUpstream()


@pytest.fixture
def store() -> MemoryDataKeys:
    return MemoryDataKeys()


@pytest.fixture
def upstream_url(upstream: ScriptedUpstream) -> Iterator[str]:
    with served(upstream) as url:
        yield url


@pytest.fixture
def world(upstream_url: str, store: MemoryDataKeys) -> Iterator[World]:
    with gateway(upstream_url, keys=KeyHost(store)) as world:
        yield world


def asked(url: str, prompt: str = QUESTION, **more: Any) -> tuple[str, str, str]:
    """Return outcome, cache status and text of an answer, by the real client."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="sk-a", max_retries=0) as client:
        answer = client.chat.completions.with_raw_response.create(
            model="m",
            messages=[{"role": "user", "content": prompt}],
            user=f"user-{MARKER}",
            **more,
        )
        headers = answer.headers
        if more.get("stream"):
            parts = [c.choices[0].delta.content for c in answer.parse() if c.choices]
            text = "".join(part or "" for part in parts)
        else:
            text = answer.parse().choices[0].message.content or ""
    return headers["x-cachemind-outcome"], headers["cache-status"], text


def cached(url: str, prompt: str = QUESTION) -> bool:
    """Return whether an answer is there, without asking upstream for it."""
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": prompt}],
        "user": f"user-{MARKER}",
    }
    headers = {"cache-control": "only-if-cached", "authorization": "Bearer sk-a"}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code in (200, 504)
    return answer.status_code == 200


def settled(world: World) -> None:
    wait_until(lambda: folded(world))


def put_on_log(world: World, stored: Stored) -> None:
    """Append a `Stored` as another writer would."""
    [first] = [e for e in world.envelopes if isinstance(e.body, Stored)][:1]
    event = replace(
        first,
        event_id=type(first.event_id)(b"\7" * 16),
        op_hash=hash_of(stored, first.occurred_at_ns),
        body=stored,
    )
    world.log.writer().append(NAMESPACE.encode(), world.codec.encode(event), ())
    settled(world)


def erased(world: World, store: MemoryDataKeys) -> None:
    first = world.envelopes[0]

    def append(body: Invalidated | KeyShredded) -> Lsn:
        event = replace(
            first,
            event_id=type(first.event_id)(hash_of(body, 1)[:16]),
            op_hash=hash_of(body, first.occurred_at_ns),
            body=body,
        )
        record = world.codec.encode(event)
        return world.log.writer().append(NAMESPACE.encode(), record, ()).result(5)

    erase(store, NAMESPACE, append, lambda: 9, "asked")


def raw_log(world: World) -> bytes:
    reader, partition = world.log.reader(), partition_of(NAMESPACE.encode(), PARTITIONS)
    first, end = reader.bounds(partition)
    return b"".join(
        record.value or b""
        for batch in reader.read(partition, first, end)
        for record in batch
    )


@pytest.mark.parametrize("stream", [False, True])
def test_a_miss_is_stored_sealed_and_hit_by_key_and_by_meaning(
    world: World, stream: bool
) -> None:
    outcome, _, text = asked(world.url, stream=stream)
    assert (outcome, MARKER in text) == ("miss", True)
    assert asked(world.url, stream=not stream)[::2] == ("hit_exact", text)
    assert asked(world.url, CLOSE, stream=stream)[::2] == ("hit_semantic", text)
    settled(world)
    assert asked(world.url, stream=stream)[::2] == ("hit_exact", text)
    assert asked(world.url, CLOSE)[::2] == ("hit_semantic", text)
    [stored] = world.of(Stored)
    assert (stored.prompt, stored.parameters, stored.semantic_key) == (None, "{}", "")
    assert MARKER.encode() not in raw_log(world)
    hits = [read for read in world.reads if read.outcome is Outcome.HIT_EXACT]
    assert {read.response_hash for read in hits} == {stored.response_hash}


def test_a_second_worker_reads_what_the_first_one_sealed(
    world: World, store: MemoryDataKeys, upstream_url: str
) -> None:
    text = asked(world.url)[2]
    settled(world)
    with another_worker(world, upstream_url, KeyHost(store)) as other:
        assert asked(other)[::2] == ("hit_exact", text)
        assert asked(other, CLOSE)[::2] == ("hit_semantic", text)


def test_after_an_erasure_every_worker_misses_and_writes_under_a_new_key(
    world: World, store: MemoryDataKeys, upstream_url: str
) -> None:
    with another_worker(world, upstream_url, KeyHost(store)) as other:
        asked(world.url)
        settled(world)
        assert all(
            cached(url, p) for url in (world.url, other) for p in (QUESTION, CLOSE)
        )
        old = world.of(Stored)[0]
        erased(world, store)
        settled(world)
        wait_until(lambda: not cached(other))
        for url in (world.url, other):
            assert not cached(url)
            assert not cached(url, CLOSE)
        # As a rollback would: the sealed entry is there again, and stays unreadable.
        put_on_log(world, old)
        assert not cached(world.url, CLOSE)
        outcome, status, _ = asked(world.url)
        assert (outcome, "payload-no-key" in status) == ("miss", True)
        wait_until(lambda: asked(other)[0] == "hit_exact")
        first, second = store.keys(NAMESPACE)
        assert (first.lives, second.lives) == (False, True)
        assert second.key_id.encode() in world.of(Stored)[-1].response


def test_the_logs_word_counts_while_the_wrapped_key_is_still_there(
    world: World, store: MemoryDataKeys
) -> None:
    asked(world.url)
    settled(world)
    old = world.of(Stored)[0]
    [key] = store.keys(NAMESPACE)
    erased(world, MemoryDataKeysOf(store))
    settled(world)
    put_on_log(world, old)
    assert store.keys(NAMESPACE)[0].lives
    assert "payload-no-key" in asked(world.url)[1]
    wait_until(lambda: asked(world.url)[0] == "hit_exact")
    assert key.key_id.encode() not in world.of(Stored)[-1].response


class MemoryDataKeysOf(MemoryDataKeys):
    """A store of keys that is cut off before it destroys one."""

    def __init__(self, inner: MemoryDataKeys) -> None:
        super().__init__()
        for key in inner.keys(NAMESPACE):
            self.create(key)


def test_an_entry_in_the_clear_is_no_hit_once_encryption_is_on(
    upstream_url: str, store: MemoryDataKeys
) -> None:
    with gateway(upstream_url) as plain:
        asked(plain.url)
        settled(plain)
        with another_worker(plain, upstream_url, KeyHost(store)) as sealed:
            assert "payload-plain" in asked(sealed)[1]
            assert asked(sealed, CLOSE)[0] in ("hit_semantic", "miss")
            wait_until(lambda: asked(sealed)[0] == "hit_exact")
            settled(plain)
            assert "payload-sealed" in asked(plain.url)[1]


@pytest.mark.parametrize("place", [0, 10, 40, 55, -1])
def test_a_changed_payload_is_a_miss(world: World, place: int) -> None:
    asked(world.url)
    settled(world)
    stored = world.of(Stored)[0]
    changed = bytearray(stored.response)
    changed[place] ^= 1
    put_on_log(world, replace(stored, response=bytes(changed)))
    outcome, status, _ = asked(world.url)
    assert outcome == "miss"
    assert "detail=payload-" in status
    assert b"payload-" in httpx.get(f"{world.url}/metrics").content


def test_a_payload_of_another_entry_is_a_miss(world: World) -> None:
    asked(world.url)
    asked(world.url, "Who wrote the opera about the flute?")
    settled(world)
    one, other = world.of(Stored)
    put_on_log(world, replace(one, response=other.response))
    assert "payload-damaged" in asked(world.url)[1]


def test_without_a_key_answers_pass_through_and_nothing_is_stored(
    upstream_url: str, store: MemoryDataKeys
) -> None:
    host = KeyHost(store, makes=False)
    with gateway(upstream_url, keys=host) as world:
        for _ in range(2):
            outcome, status, text = asked(world.url)
            assert (outcome, MARKER in text) == ("miss", True)
            assert "payload-no-key" in status
        put = httpx.post(f"{world.url}/v1/cachemind/entries", json=wanted())
        assert (put.status_code, put.json()["error"]["code"]) == (503, "no_data_key")
        assert not world.of(Stored)
        assert MARKER.encode() not in raw_log(world)


def test_hits_go_on_while_the_store_of_keys_is_away(
    world: World, store: MemoryDataKeys
) -> None:
    asked(world.url)
    store.failure = KeyUnavailable("keys", "are away")
    assert asked(world.url)[0] == "hit_exact"


def test_what_is_put_is_sealed_and_shown_to_who_has_the_key(
    world: World, upstream_url: str
) -> None:
    put = httpx.post(f"{world.url}/v1/cachemind/entries", json=wanted())
    assert put.status_code == 201
    settled(world)
    assert MARKER.encode() not in raw_log(world)
    path = f"/v1/cachemind/entries/{put.json()['key']}"
    shown = httpx.get(world.url + path).json()
    assert MARKER in shown["prompt"]
    assert shown["response"]["choices"][0]["message"]["content"] == "forty-two"
    as_of = httpx.get(f"{world.url}{path}?as_of=1").json()
    assert (as_of["prompt"], as_of["response"]) == (shown["prompt"], shown["response"])
    with another_worker(world, upstream_url) as keyless:
        hidden = httpx.get(keyless + path).json()
        assert hidden["response"]["reason"] == "payload-sealed"
        assert hidden["prompt"] is None
        diff = httpx.get(f"{keyless}/v1/diff?from=0&to=1&bodies=1").json()
        assert MARKER not in str(diff)
    diff = httpx.get(f"{world.url}/v1/diff?from=0&to=1&bodies=1").json()
    assert MARKER in str(diff)


def test_what_needs_the_prompt_in_the_clear_is_refused_with_the_reason(
    world: World,
) -> None:
    body = {"kind": "prefix", "value": "How"}
    answer = httpx.post(f"{world.url}/v1/cachemind/invalidate", json=body)
    assert answer.status_code == 422
    assert "encrypted" in answer.json()["error"]["message"]
    body = {"kind": "model", "value": "m"}
    answer = httpx.post(f"{world.url}/v1/cachemind/invalidate", json=body)
    assert answer.status_code == 200


def wanted() -> dict[str, Any]:
    message = {"role": "assistant", "content": "forty-two"}
    return {
        "request": {
            "model": "m",
            "messages": [{"role": "user", "content": f"What is a {MARKER}?"}],
        },
        "response": {
            "id": "x",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        },
    }
