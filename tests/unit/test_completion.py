from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.completion import (
    CompletionAggregator,
    Json,
    JsonObject,
    check_completion,
)
from cachemind.core.completion_chunks import frames, synthesise
from cachemind.core.sse import SseParser
from cachemind.errors import MalformedCompletion


def aggregate(*chunks: JsonObject) -> JsonObject:
    aggregator = CompletionAggregator()
    for chunk in chunks:
        aggregator.add(orjson.dumps(chunk).decode())
    return aggregator.completion()


def delta(**fields: Json) -> JsonObject:
    return {"choices": [{"index": 0, "delta": fields}]}


def is_complete(aggregator: CompletionAggregator) -> bool:
    return aggregator.complete


def message(*chunks: JsonObject) -> Json:
    choices = aggregate(*chunks)["choices"]
    assert isinstance(choices, list)
    assert isinstance(choices[0], dict)
    return choices[0]["message"]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        pytest.param(
            [
                delta(role="assistant", content=""),
                delta(content="He"),
                delta(content="y"),
            ],
            {"role": "assistant", "content": "Hey"},
            id="content-is-joined",
        ),
        pytest.param(
            [delta(content=None), delta(content="a"), delta(content=None)],
            {"role": "assistant", "content": "a"},
            id="null-never-replaces",
        ),
        pytest.param(
            [
                delta(role="assistant"),
                delta(role="assistant", refusal="N"),
                delta(refusal="o"),
            ],
            {"role": "assistant", "refusal": "No"},
            id="refusal-and-repeated-role",
        ),
        pytest.param(
            [delta(reasoning_content="a"), delta(reasoning_content="b", content="c")],
            {"role": "assistant", "reasoning_content": "ab", "content": "c"},
            id="reasoning",
        ),
        pytest.param(
            [
                delta(
                    tool_calls=[
                        {
                            "index": 1,
                            "id": "b",
                            "type": "function",
                            "function": {"name": "g", "arguments": ""},
                        }
                    ]
                ),
                delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "f"}}]),
                delta(
                    tool_calls=[{"index": 1, "id": "b", "function": {"arguments": "{"}}]
                ),
                delta(tool_calls=[{"index": 1, "function": {"arguments": "}"}}]),
            ],
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "a", "function": {"name": "f"}},
                    {
                        "id": "b",
                        "type": "function",
                        "function": {"name": "g", "arguments": "{}"},
                    },
                ],
            },
            id="tool-calls-by-index",
        ),
        pytest.param(
            [
                delta(function_call={"name": "f", "arguments": "{"}),
                delta(function_call={"arguments": "}"}),
            ],
            {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
            id="function-call",
        ),
        pytest.param(
            [
                delta(x_list=[1], x_number=1, x_object={"a": "1"}),
                delta(x_list=[2], x_number=2, x_object={"a": "2", "b": True}),
            ],
            {
                "role": "assistant",
                "x_list": [1, 2],
                "x_number": 2,
                "x_object": {"a": "12", "b": True},
            },
            id="unknown-fields-by-type",
        ),
        pytest.param(
            [
                delta(details=[{"index": 0, "type": "text", "text": "a"}]),
                delta(details=[{"index": 0, "type": "text", "text": "b"}]),
                delta(details=[{"index": 1, "type": "text", "text": "c"}]),
            ],
            {
                "role": "assistant",
                "details": [
                    {"index": 0, "type": "text", "text": "ab"},
                    {"index": 1, "type": "text", "text": "c"},
                ],
            },
            id="unknown-indexed-lists-by-index",
        ),
    ],
)
def test_deltas_join_into_a_message(chunks: list[JsonObject], expected: Json) -> None:
    assert message(*chunks) == expected


def test_choices_usage_and_logprobs_are_collected() -> None:
    def part(index: int, text: str, *tokens: str) -> JsonObject:
        logprobs: Json = {"content": [{"token": token} for token in tokens]}
        return {"index": index, "delta": {"content": text}, "logprobs": logprobs}

    end: JsonObject = {"index": 0, "delta": {}, "finish_reason": "stop", "x_stop": 7}
    found = aggregate(
        {"id": "c", "object": "chat.completion.chunk", "choices": [part(1, "x", "x")]},
        {"id": "c", "choices": [part(0, "a", "a"), part(0, "b", "b")], "usage": None},
        {"id": "c", "choices": [end]},
        {"id": "c", "choices": [{"index": 1, "finish_reason": "length"}]},
        {"id": "c", "choices": [], "usage": {"total_tokens": 3}},
    )
    assert found == {
        "id": "c",
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "ab"},
                "logprobs": {"content": [{"token": "a"}, {"token": "b"}]},
                "finish_reason": "stop",
                "x_stop": 7,
            },
            {
                "index": 1,
                "message": {"role": "assistant", "content": "x"},
                "logprobs": {"content": [{"token": "x"}]},
                "finish_reason": "length",
            },
        ],
        "usage": {"total_tokens": 3},
    }


def test_a_stream_is_complete_when_all_choices_finished_and_it_said_done() -> None:
    aggregator = CompletionAggregator()
    aggregator.add('{"choices":[{"index":0,"delta":{"content":"a"}}]}')
    aggregator.add('{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}')
    assert not is_complete(aggregator)
    aggregator.add("[DONE]")
    assert is_complete(aggregator)
    aggregator.add('{"choices":[{"index":1,"delta":{"content":"a"}}]}')
    assert not is_complete(aggregator)


@pytest.mark.parametrize(
    "data",
    [
        "{",
        "[]",
        '"x"',
        '{"error":{"message":"overloaded"}}',
        '{"choices":[1]}',
        '{"choices":"x"}',
        '{"choices":[{"index":-1}]}',
        '{"choices":[{"index":true}]}',
        '{"choices":[{"index":0,"delta":"x"}]}',
        '{"choices":[{"index":0,"delta":{"tool_calls":[1]}}]}',
    ],
)
def test_what_is_not_a_chunk_is_refused(data: str) -> None:
    with pytest.raises(MalformedCompletion):
        CompletionAggregator().add(data)


@pytest.mark.parametrize(
    "completion",
    [
        {},
        {"object": "chat.completion"},
        {"object": "chat.completion", "choices": []},
        {"object": "chat.completion", "choices": [{"index": 0, "message": None}]},
        {
            "object": "chat.completion",
            "choices": [{"index": 0, "message": {"role": "assistant"}}],
        },
        {
            "object": "chat.completion",
            "choices": [
                {"index": 1, "finish_reason": "stop", "message": {"role": "assistant"}}
            ],
        },
    ],
)
def test_what_is_not_a_completion_is_refused(completion: JsonObject) -> None:
    with pytest.raises(MalformedCompletion):
        check_completion(completion)


numbers = st.integers(-(2**53), 2**53) | st.floats(
    allow_nan=False, allow_infinity=False
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
json_values: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "index", "id"]), inner, max_size=3)
    ),
    max_leaves=6,
)
tool_calls: st.SearchStrategy[Json] = st.lists(
    st.fixed_dictionaries(
        {
            "id": texts,
            "type": st.just("function"),
            "function": st.fixed_dictionaries({"name": texts, "arguments": texts}),
        },
        optional={"x_extra": json_values},
    ),
    max_size=3,
)


@st.composite
def choices(draw: st.DrawFn, index: int) -> JsonObject:
    tokens = draw(st.lists(texts, max_size=5))
    spelled = draw(st.booleans())
    content = "".join(tokens) if spelled else draw(st.none() | texts)
    choice: JsonObject = {
        "index": index,
        "message": {
            "role": draw(st.sampled_from(["assistant", "tool"])),
            "content": content,
            **draw(
                st.fixed_dictionaries(
                    {},
                    optional={
                        "refusal": st.none() | texts,
                        "reasoning_content": texts,
                        "tool_calls": st.none() | tool_calls,
                        "function_call": st.fixed_dictionaries({"name": texts}),
                        "id": texts,
                        "x_field": json_values,
                    },
                )
            ),
        },
        "finish_reason": draw(st.sampled_from(["stop", "length", "tool_calls"])),
        **draw(st.fixed_dictionaries({}, optional={"stop_reason": json_values})),
    }
    if draw(st.booleans()):
        entries: list[Json] = [{"token": t, "logprob": -0.5} for t in tokens]
        extra = draw(st.fixed_dictionaries({}, optional={"refusal": st.none()}))
        lists: list[Json] = [None, {"content": entries, **extra}, {"x": entries}]
        choice["logprobs"] = draw(st.sampled_from(lists))
    return choice


@st.composite
def completions(draw: st.DrawFn) -> JsonObject:
    return {
        "id": draw(texts),
        "object": "chat.completion",
        "model": draw(texts),
        "choices": [draw(choices(index)) for index in range(draw(st.integers(1, 3)))],
        "usage": {"total_tokens": draw(st.integers(0, 9))},
        **draw(
            st.fixed_dictionaries(
                {}, optional={"system_fingerprint": texts, "x_top": json_values}
            )
        ),
    }


@given(completion=completions())
def test_a_replayed_stream_joins_to_the_stored_completion(
    completion: JsonObject,
) -> None:
    parser, aggregator = SseParser(), CompletionAggregator()
    for frame in frames(completion, include_usage=True):
        for parsed in parser.feed(frame):
            assert parsed.event is not None
            aggregator.add(parsed.event.data)
    assert aggregator.complete
    assert aggregator.completion() == completion


@given(completion=completions())
def test_a_replay_tells_usage_only_where_it_was_asked_for(
    completion: JsonObject,
) -> None:
    without = list(synthesise(completion, include_usage=False))
    assert not any("usage" in chunk for chunk in without)
    with_usage = list(synthesise(completion, include_usage=True))
    assert with_usage[-1]["choices"] == []
    assert with_usage[-1]["usage"] == completion["usage"]
    assert all(chunk["usage"] is None for chunk in with_usage[:-1])


def test_a_long_text_is_replayed_in_several_pieces() -> None:
    completion: JsonObject = {
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "word " * 40},
                "finish_reason": "stop",
            }
        ],
    }
    assert len(list(synthesise(completion, include_usage=False))) > 5
