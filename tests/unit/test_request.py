from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.request import ChatRequest, parse_chat
from cachemind.errors import InvalidRequest

USER = {"role": "user", "content": "Hello"}


def parse(**fields: object) -> ChatRequest:
    return parse_chat(json.dumps({"model": "m", "messages": [USER], **fields}).encode())


def field_refused(body: bytes) -> str | None:
    try:
        parse_chat(body)
    except InvalidRequest as error:
        return error.field
    return None


def test_every_field_finds_its_place() -> None:
    system = {"role": "system", "content": "Be brief."}

    request = parse(
        messages=[system, USER],
        stream=True,
        stream_options={"include_usage": True},
        n=2,
        temperature=0.2,
        unknown={"a": [1]},
    )

    assert request == ChatRequest(
        model="m",
        stream=True,
        include_usage=True,
        n=2,
        messages=[system, USER],
        user_texts=("Hello",),
        parameters={"n": 2, "temperature": 0.2, "unknown": {"a": [1]}},
    )


def test_the_smallest_request_has_the_defaults_of_the_api() -> None:
    request = parse()

    assert (request.stream, request.include_usage, request.n) == (False, False, 1)
    assert request.parameters == {}


@pytest.mark.parametrize(
    "field", ["stream", "stream_options", "n", "temperature", "top_p", "max_tokens"]
)
def test_null_stands_for_a_default(field: str) -> None:
    request = parse(**{field: None})

    assert (request.stream, request.include_usage, request.n) == (False, False, 1)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        pytest.param({"model": None}, "model", id="model-null"),
        pytest.param({"model": 7}, "model", id="model-number"),
        pytest.param({"model": ""}, "model", id="model-empty"),
        pytest.param({"messages": None}, "messages", id="messages-null"),
        pytest.param({"messages": []}, "messages", id="messages-empty"),
        pytest.param({"messages": {}}, "messages", id="messages-object"),
        pytest.param({"messages": ["hi"]}, "messages[0]", id="message-text"),
        pytest.param({"messages": [USER, None]}, "messages[1]", id="message-null"),
        pytest.param({"messages": [{}]}, "messages[0].role", id="role-missing"),
        pytest.param(
            {"messages": [USER, {"role": 1}]}, "messages[1].role", id="role-number"
        ),
        pytest.param({"stream": "true"}, "stream", id="stream-text"),
        pytest.param({"stream": 1}, "stream", id="stream-number"),
        pytest.param({"stream_options": True}, "stream_options", id="options-bool"),
        pytest.param(
            {"stream_options": {"include_usage": 1}},
            "stream_options.include_usage",
            id="include-usage-number",
        ),
        pytest.param({"n": 0}, "n", id="n-zero"),
        pytest.param({"n": -1}, "n", id="n-negative"),
        pytest.param({"n": True}, "n", id="n-bool"),
        pytest.param({"n": 1.5}, "n", id="n-fraction"),
        pytest.param({"n": "2"}, "n", id="n-text"),
        pytest.param({"max_tokens": -1}, "max_tokens", id="max-tokens-negative"),
        pytest.param({"max_tokens": 1.5}, "max_tokens", id="max-tokens-fraction"),
        pytest.param({"max_tokens": "9"}, "max_tokens", id="max-tokens-text"),
        pytest.param({"max_tokens": True}, "max_tokens", id="max-tokens-bool"),
        pytest.param(
            {"max_completion_tokens": -1},
            "max_completion_tokens",
            id="max-completion-tokens-negative",
        ),
        pytest.param({"temperature": "0"}, "temperature", id="temperature-text"),
        pytest.param({"temperature": False}, "temperature", id="temperature-bool"),
        pytest.param({"top_p": [1]}, "top_p", id="top-p-list"),
    ],
)
def test_a_malformed_field_is_named(fields: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(**fields)
    assert (caught.value.field, caught.value.status) == (field, 400)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(b" \n", "is empty", id="blank"),
        pytest.param(b'{"model":"m","mess', "is not JSON at character", id="truncated"),
        pytest.param(b'{"model":NaN}', "is not JSON at character", id="nan"),
        pytest.param(b'{"t":1e999}', "is not JSON at character", id="infinite"),
        pytest.param(b'{"model":"\xff"}', "is not UTF-8 at byte 10", id="bad-utf-8"),
        pytest.param(b'{"model":"\\ud800"}', "is not JSON", id="half-a-surrogate"),
        pytest.param(b'\xef\xbb\xbf{"model":"m"}', "is not JSON", id="byte-order-mark"),
        pytest.param(b"[" * 2000, "is not JSON", id="too-deep"),
        pytest.param(b"[]", "must be an object, found an empty list", id="list"),
        pytest.param(b'"model"', "must be an object, found a string", id="text"),
        pytest.param(b"null", "must be an object, found null", id="null"),
    ],
)
def test_a_body_that_is_no_json_object_is_the_clients_error(
    body: bytes, problem: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_chat(body)
    assert caught.value.field == "body"
    assert caught.value.problem.startswith(problem)


@pytest.mark.parametrize("missing", ["model", "messages"])
def test_a_missing_field_is_named(missing: str) -> None:
    fields = {"model": "m", "messages": [USER]}
    del fields[missing]

    with pytest.raises(InvalidRequest, match="found nothing") as caught:
        parse_chat(json.dumps(fields).encode())
    assert caught.value.field == missing


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(USER, "Hello", id="string"),
        pytest.param(
            {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
            "Hello",
            id="one-text-part",
        ),
        pytest.param(
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Hello"},
                    {"type": "text", "text": "you"},
                ],
            },
            "Hello\nyou",
            id="two-text-parts",
        ),
        pytest.param({"role": "user", "content": " \n "}, None, id="blank"),
        pytest.param({"role": "user", "content": []}, None, id="no-parts"),
        pytest.param({"role": "user", "content": None}, None, id="null"),
        pytest.param({"role": "user", "content": 7}, None, id="number"),
        pytest.param({"role": "user"}, None, id="no-content"),
        pytest.param(
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image_url", "image_url": {"url": "x"}},
                ],
            },
            None,
            id="with-an-image",
        ),
        pytest.param(
            {"role": "user", "content": [{"type": "text", "text": 1}]},
            None,
            id="text-part-without-text",
        ),
        pytest.param({"role": "user", "content": ["Hello"]}, None, id="bare-part"),
        pytest.param({"role": "assistant", "content": "Hi"}, None, id="assistant"),
        pytest.param({"role": "system", "content": "Hi"}, None, id="system"),
        pytest.param({"role": "tool", "content": "Hi"}, None, id="tool"),
    ],
)
def test_last_user_text(message: dict[str, object], expected: str | None) -> None:
    assert parse(messages=[USER, message]).last_user_text == expected


@given(secret=st.text(st.characters(codec="ascii", categories=["L"]), min_size=12))
def test_no_error_repeats_what_the_client_sent(secret: str) -> None:
    bodies = [
        json.dumps({"model": "m", "messages": secret}),
        json.dumps({"model": "m", "messages": [{"role": [secret]}]}),
        json.dumps({"model": "m", "messages": [USER], "n": secret}),
        f'{{"model": "{secret}',
    ]
    for body in bodies:
        with pytest.raises(InvalidRequest) as caught:
            parse_chat(body.encode())
        assert secret not in str(caught.value)


@given(body=st.binary())
def test_any_bytes_are_a_request_or_the_clients_error(body: bytes) -> None:
    assert field_refused(body) in {None, "body", "model"}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "include_usage"]), inner
        )
    ),
    max_leaves=8,
)
FIELDS = [
    "model", "messages", "stream", "stream_options", "n", "temperature", "max_tokens",
]  # fmt: skip


@given(fields=st.dictionaries(st.sampled_from(FIELDS), json_values))
def test_any_object_is_a_request_or_the_clients_error(
    fields: dict[str, object],
) -> None:
    body = {"model": "m", "messages": [USER], **fields}
    refused = field_refused(json.dumps(body).encode())

    assert refused is None or re.split(r"[.\[]", refused)[0] in FIELDS
