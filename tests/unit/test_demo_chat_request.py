from __future__ import annotations

import json
from typing import Any

import pytest

from cachemind_services.demo.chat_request import (
    DEFAULT_MAX_TOKENS,
    ChatCall,
    RequestProblem,
    parse_call,
)

MODEL = "small"


def call(**fields: object) -> ChatCall:
    whole = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **fields}
    return parse_call(json.dumps(whole).encode(), MODEL)


def test_a_bare_request_gets_safe_defaults() -> None:
    found = call()
    assert found.messages == ({"role": "user", "content": "hi"},)
    assert found.sampling.max_tokens == DEFAULT_MAX_TOKENS
    assert (found.choices, found.stream, found.logprobs) == (1, False, False)
    assert found.sampling.seed is None


def test_named_fields_are_taken() -> None:
    found = call(
        max_completion_tokens=5,
        max_tokens=9,
        temperature=1,
        top_p=0.5,
        stop="end",
        seed=-3,
        n=2,
        stream=True,
        stream_options={"include_usage": True},
        logprobs=True,
        top_logprobs=4,
    )
    sampling = found.sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p) == (5, 1.0, 0.5)
    assert (sampling.stop, sampling.seed, sampling.top_logprobs) == (("end",), -3, 4)
    assert (found.choices, found.stream, found.include_usage) == (2, True, True)
    assert sampling.of_choice(1).seed == -2


def test_text_parts_are_joined_and_developers_are_the_system() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    found = call(messages=[{"role": "developer", "content": parts}])
    assert found.messages == ({"role": "system", "content": "ab"},)


@pytest.mark.parametrize(
    "harmless",
    [
        {"tools": []},
        {"tools": None},
        {"response_format": {"type": "text"}},
        {"presence_penalty": 0.0},
        {"user": "someone"},
        {"stop": None},
        {"temperature": None},
    ],
)
def test_fields_that_ask_for_nothing_are_let_pass(harmless: dict[str, Any]) -> None:
    assert call(**harmless).choices == 1


@pytest.mark.parametrize(
    ("fields", "param", "status"),
    [
        ({"model": "other"}, "model", 404),
        ({"model": None}, "model", 404),
        ({"messages": []}, "messages", 400),
        ({"messages": "hi"}, "messages", 400),
        ({"messages": ["hi"]}, "messages[0]", 400),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0]", 400),
        ({"messages": [{"role": "user"}]}, "messages[0]", 400),
        ({"messages": [{"role": "user", "content": [1]}]}, "messages[0]", 400),
        ({"max_tokens": 0}, "max_tokens", 400),
        ({"max_tokens": -1}, "max_tokens", 400),
        ({"max_tokens": 1.5}, "max_tokens", 400),
        ({"max_tokens": True}, "max_tokens", 400),
        ({"max_completion_tokens": 10**6}, "max_completion_tokens", 400),
        ({"temperature": 2.1}, "temperature", 400),
        ({"temperature": "hot"}, "temperature", 400),
        ({"top_p": -0.1}, "top_p", 400),
        ({"n": 0}, "n", 400),
        ({"n": 9}, "n", 400),
        ({"seed": 2**63}, "seed", 400),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop", 400),
        ({"stop": [""]}, "stop", 400),
        ({"stop": {"a": 1}}, "stop", 400),
        ({"stream": "yes"}, "stream", 400),
        ({"stream_options": []}, "stream_options", 400),
        ({"top_logprobs": 2}, "top_logprobs", 400),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", 400),
        ({"tools": [{}]}, "tools", 400),
        ({"response_format": {"type": "json_object"}}, "response_format", 400),
        ({"logit_bias": {"1": 2}}, "logit_bias", 400),
    ],
)
def test_what_cannot_be_done_is_an_error_naming_the_field(
    fields: dict[str, Any], param: str, status: int
) -> None:
    with pytest.raises(RequestProblem) as caught:
        call(**fields)
    assert caught.value.body["error"]["param"] == param
    assert caught.value.status == status


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"\xff", b"nul"])
def test_what_is_no_object_is_an_error(body: bytes) -> None:
    with pytest.raises(RequestProblem) as caught:
        parse_call(body, MODEL)
    assert caught.value.status == 400
