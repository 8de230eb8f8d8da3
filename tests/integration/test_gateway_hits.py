"""Miss, then hit: JSON and stream, exact and by meaning, with the real client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from cachemind.core.completion import CompletionAggregator, JsonObject
from cachemind.events import Outcome, Stored
from tests.gateways import World, folded, gateway
from tests.upstreams import (
    ScriptedUpstream,
    completion,
    served,
    sse,
    streams,
    wait_until,
)

QUESTION = "How do I parse nested JSON in Python without losing the order of its keys?"
CLOSE = "How do I parse a nested JSON in Python without losing the order of its keys?"
TOOLS: Any = [{"type": "function", "function": {"name": "look_up", "parameters": {}}}]


@pytest.fixture
def upstream() -> ScriptedUpstream:
    return ScriptedUpstream()


@pytest.fixture
def world(upstream: ScriptedUpstream) -> Iterator[World]:
    with served(upstream) as url, gateway(url) as world:
        yield world


@pytest.fixture
def client(world: World) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{world.url}/v1", api_key="sk-a", max_retries=0
    ) as client:
        yield client


def request(prompt: str = QUESTION, **more: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "messages": [
            {"role": "system", "content": "You are terse."},
            {"role": "user", "content": prompt},
        ],
        "temperature": 0.2,
        **more,
    }


def ask(
    client: openai.OpenAI, prompt: str = QUESTION, **more: Any
) -> tuple[Any, ChatCompletion]:
    raw = client.chat.completions.with_raw_response.create(**request(prompt, **more))
    return raw.headers, raw.parse()


def stream(
    client: openai.OpenAI, prompt: str = QUESTION, **more: Any
) -> tuple[Any, JsonObject, list[ChatCompletionChunk]]:
    with client.chat.completions.with_streaming_response.create(
        **request(prompt, stream=True, **more)
    ) as raw:
        headers = raw.headers
        chunks = list(raw.parse())
    joined = CompletionAggregator()
    for chunk in chunks:
        joined.add(chunk.model_dump_json(exclude_unset=True))
    return headers, joined.completion(), chunks


def settled(world: World) -> None:
    """Wait until the store shows what the log holds."""
    wait_until(lambda: folded(world))


def test_the_second_of_two_equal_requests_is_a_hit(
    world: World, client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    first_headers, first = ask(client)
    second_headers, second = ask(client)
    assert len(upstream.chats) == 1
    assert second.model_dump() == first.model_dump()
    assert second.usage == first.usage
    assert first_headers["x-cachemind-outcome"] == "miss"
    assert second_headers["x-cachemind-outcome"] == "hit_exact"
    assert (
        first_headers["cache-status"] == "CacheMind; fwd=miss; fwd-status=200; stored"
    )
    assert second_headers["cache-status"].startswith("CacheMind; hit; ttl=")
    assert second_headers["x-cachemind-similarity"] == "1.0000"
    assert int(second_headers["age"]) in (0, 1)
    assert second_headers["date"].endswith(" GMT")
    assert second_headers["x-cachemind-lsn"] != first_headers["x-cachemind-lsn"]
    prompt_hash = second_headers["x-cachemind-prompt-hash"]
    assert prompt_hash == first_headers["x-cachemind-prompt-hash"]
    assert [read.outcome for read in world.reads] == [Outcome.MISS, Outcome.HIT_EXACT]
    stored = world.of(Stored)[0]
    assert world.reads[1].response_hash == stored.response_hash
    assert world.reads[1].prompt_hash.hex() == prompt_hash


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="text"),
        pytest.param({"n": 3}, id="three-choices"),
        pytest.param({"tools": TOOLS}, id="tool-calls"),
        pytest.param({"logprobs": True, "top_logprobs": 1}, id="logprobs"),
    ],
)
def test_json_and_stream_serve_each_other(
    client: openai.OpenAI, upstream: ScriptedUpstream, more: dict[str, Any]
) -> None:
    _, as_json = ask(client, **more)
    headers, joined, chunks = stream(
        client, stream_options={"include_usage": True}, **more
    )
    assert headers["x-cachemind-outcome"] == "hit_exact"
    assert headers["content-type"].startswith("text/event-stream")
    assert joined == as_json.model_dump(exclude_unset=True)
    assert len(chunks) >= 3
    _, streamed_first, _ = stream(client, "And the other way round?", **more)
    assert streamed_first.pop("usage") is None
    headers, after = ask(client, "And the other way round?", **more)
    assert headers["x-cachemind-outcome"] == "hit_exact"
    found = after.model_dump(exclude_unset=True)
    assert found.pop("usage")["total_tokens"] == 18
    assert found == streamed_first
    assert len(upstream.chats) == 2


def test_a_client_sees_usage_in_a_stream_only_if_it_asked(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    for _ in range(2):
        _, _, chunks = stream(client)
        assert all(chunk.choices for chunk in chunks)
        assert all(chunk.usage is None for chunk in chunks)
    _, _, chunks = stream(client, stream_options={"include_usage": True})
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 18
    assert len(upstream.chats) == 1
    assert upstream.chats[0].json["stream_options"] == {"include_usage": True}
    assert upstream.chats[0].body.startswith(
        b'{"stream_options":{"include_usage":true}'
    )


def test_a_missed_stream_passes_byte_for_byte(
    world: World, upstream: ScriptedUpstream
) -> None:
    body = request(stream=True, stream_options={"include_usage": True})
    raw = b": ping\r\n\r\n" + b"".join(sse(completion(body), include_usage=True))
    upstream.behaviour = streams([raw[at : at + 7] for at in range(0, len(raw), 7)])
    sent = json.dumps(body, indent=2)
    answer = httpx.post(f"{world.url}/v1/chat/completions", content=sent)
    assert answer.content == raw
    assert upstream.chats[0].body == sent.encode()
    again = httpx.post(f"{world.url}/v1/chat/completions", content=sent)
    assert again.headers["x-cachemind-outcome"] == "hit_exact"


def test_a_paraphrase_is_a_hit_by_meaning(
    world: World, client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    _, first = ask(client)
    settled(world)
    headers, second = ask(client, CLOSE)
    assert headers["x-cachemind-outcome"] == "hit_semantic"
    assert 0.92 <= float(headers["x-cachemind-similarity"]) < 1
    assert headers["cache-status"].endswith("detail=semantic")
    assert second.model_dump() == first.model_dump()
    assert len(upstream.chats) == 1
    read = world.reads[-1]
    assert read.matched_key == world.of(Stored)[0].exact_key != read.exact_key


def test_a_paraphrase_right_after_the_answer_is_a_hit(
    world: World, client: openai.OpenAI
) -> None:
    world.fold.pause()
    ask(client, "Something else in this context, so that it is in memory.")
    ask(client)
    headers, _ = ask(client, CLOSE)
    assert headers["x-cachemind-outcome"] == "hit_semantic"
    headers, _ = ask(client)
    assert headers["x-cachemind-outcome"] == "hit_exact"
    world.fold.resume()
    settled(world)
    headers, _ = ask(client)
    assert headers["x-cachemind-outcome"] == "hit_exact"


@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param(QUESTION + " Give 3 examples.", id="number"),
        pytest.param(QUESTION.replace("do I", "do I not"), id="negation"),
    ],
)
def test_a_guarded_near_miss_is_no_hit(
    world: World, client: openai.OpenAI, prompt: str
) -> None:
    ask(client, QUESTION + " Give 2 examples." if "3" in prompt else QUESTION)
    headers, _ = ask(client, prompt)
    assert headers["x-cachemind-outcome"] == "miss"
    assert world.reads[-1].reason.startswith("guard-")
    assert world.reads[-1].similarity is not None


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"temperature": 0.21}, id="temperature-0.21"),
        pytest.param({"temperature": 0.2049}, id="temperature-0.2049"),
        pytest.param({"model": "other"}, id="model"),
        pytest.param({"tools": TOOLS}, id="tools"),
        pytest.param({"n": 2}, id="n"),
        pytest.param({"max_tokens": 900}, id="max-tokens"),
        pytest.param({"seed": 1}, id="seed"),
        pytest.param({"x_unknown": 1}, id="unknown-field"),
        pytest.param(
            {"messages": [{"role": "user", "content": QUESTION}]}, id="no-system-prompt"
        ),
        pytest.param(
            {
                "messages": [
                    {"role": "system", "content": "You are terse."},
                    {"role": "user", "content": "Hello"},
                    {"role": "assistant", "content": "Hi"},
                    {"role": "user", "content": QUESTION},
                ]
            },
            id="earlier-turns",
        ),
    ],
)
def test_another_context_is_no_hit(
    client: openai.OpenAI, upstream: ScriptedUpstream, changed: dict[str, Any]
) -> None:
    ask(client)
    body = {**request(), **changed}
    unknown = {k: body.pop(k) for k in list(body) if k.startswith("x_")}
    raw = client.chat.completions.with_raw_response.create(**body, extra_body=unknown)
    assert raw.headers["x-cachemind-outcome"] == "miss"
    assert len(upstream.chats) == 2


def test_callers_with_another_query_do_not_share(world: World) -> None:
    def asked(query: str) -> str:
        target = f"{world.url}/v1/chat/completions{query}"
        body = {"model": "m", "messages": [{"role": "user", "content": "Whose?"}]}
        found: str = httpx.post(target, json=body).headers["x-cachemind-outcome"]
        return found

    assert asked("?key=a") == "miss"
    assert asked("?key=a") == "hit_exact"
    assert asked("?key=b") == "miss"
    assert asked("") == "miss"


def test_callers_with_other_credentials_do_not_share(
    world: World, client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    ask(client)
    with openai.OpenAI(base_url=f"{world.url}/v1", api_key="sk-b") as other:
        headers, _ = ask(other)
    assert headers["x-cachemind-outcome"] == "miss"
    assert [r.header("authorization") for r in upstream.chats] == [
        "Bearer sk-a",
        "Bearer sk-b",
    ]


def test_the_trace_goes_through(
    world: World, client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    sent = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    headers, _ = ask(client, extra_headers=sent)
    assert headers["x-cachemind-trace"] == trace
    passed = upstream.chats[0].header("traceparent")
    assert passed is not None
    assert passed.startswith(f"00-{trace}-")
    assert passed.endswith("-01")
    assert passed != sent["traceparent"]
    assert headers["traceparent"].startswith(f"00-{trace}-")
    assert {envelope.trace_id.hex() for envelope in world.envelopes} == {trace}
    headers, _ = ask(client)
    assert headers["x-cachemind-trace"] != trace


def test_an_entry_without_usage_is_not_served_where_usage_is_due(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    stream(client, stream_options={"include_usage": False})
    headers, _, _ = stream(client)
    assert headers["x-cachemind-outcome"] == "hit_exact"
    headers, _ = ask(client)
    assert headers["x-cachemind-outcome"] == "miss"
    assert len(upstream.chats) == 2
