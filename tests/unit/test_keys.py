from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cachemind.core.canonical import canonical
from cachemind.core.keys import RequestKeys, derive_keys, prompt_hash, prompt_text
from cachemind.core.request import parse_chat
from cachemind.errors import InvalidRequest
from cachemind.types import EncoderId, Namespace
from tests.vectors import make_core_vectors

VECTORS = json.loads(
    (Path(__file__).parent.parent / "vectors" / "keys.json").read_text()
)
Body = dict[str, object]


def keys_of(
    body: Mapping[str, object],
    namespace: str = "a",
    tenant: bytes = b"t",
    encoder_id: str = "minilm",
) -> RequestKeys:
    request = parse_chat(json.dumps(body).encode())
    return derive_keys(request, Namespace(namespace), tenant, EncoderId(encoder_id))


def user(text: str) -> Body:
    return {"role": "user", "content": text}


def body_of(*messages: Body, **fields: object) -> Body:
    return {"model": "m", "messages": list(messages), **fields}


QUESTION = user("How old is she?")
PLAIN = body_of(QUESTION)


# ---- known answers ------------------------------------------------------------------


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["title"])
def test_the_published_keys_hold(vector: dict[str, str]) -> None:
    keys = keys_of(
        json.loads(json.dumps(vector["body"])),
        vector["namespace"],
        bytes.fromhex(vector["tenant"]),
        vector["encoder_id"],
    )

    assert keys.context_key.hex() == vector["context_key"]
    assert keys.exact_key.hex() == vector["exact_key"]
    assert keys.request_hash.hex() == vector["request_hash"]
    assert (keys.parameters, keys.prompt) == (vector["parameters"], vector["prompt"])


def test_the_committed_vector_files_are_what_the_script_makes() -> None:
    for path, text in make_core_vectors.files().items():
        assert path.read_text() == text


def _hash(*pieces: bytes) -> bytes:
    def le64(number: int) -> bytes:
        return number.to_bytes(8, "little")

    return sha256(
        le64(len(pieces)) + b"".join(le64(len(piece)) + piece for piece in pieces)
    ).digest()


def test_the_keys_are_the_published_definition() -> None:
    """Written out without the package's own hash helpers."""
    first: Body = {"role": "system", "content": "Be brief."}
    last = user("is it 1 or 2")
    link = _hash(b"cachemind/turn/v1")
    link = _hash(b"cachemind/turn/v1", link, b'{"content":"Be brief.","role":"system"}')
    context = _hash(
        b"cachemind/context/v1", b"a", b"t", b"m", b'{"seed":7}', b"minilm", link,
        b'{"role":"user"}',
    )  # fmt: skip

    keys = keys_of(body_of(first, last, seed=7))

    assert keys.context_key == context
    assert keys.exact_key == _hash(
        b"cachemind/exact/v1", context, b"text", b"is it 1 or 2"
    )


# ---- what must tell requests apart (complaints about keys that were too small) -------


def assert_apart(one: RequestKeys, other: RequestKeys, *, context: bool = True) -> None:
    assert one.exact_key != other.exact_key
    assert (one.context_key != other.context_key) == context


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(
            body_of(
                user("I met Ann."), {"role": "assistant", "content": "?"}, QUESTION
            ),
            id="an-earlier-turn",
        ),
        pytest.param(
            body_of({"role": "system", "content": "Be brief."}, QUESTION),
            id="a-system-prompt",
        ),
        pytest.param(
            body_of({"role": "developer", "content": "Be brief."}, QUESTION),
            id="a-developer-prompt",
        ),
        pytest.param({**PLAIN, "model": "m2"}, id="another-model"),
        pytest.param({**PLAIN, "n": 2}, id="more-choices"),
        pytest.param({**PLAIN, "temperature": 0.2}, id="a-temperature"),
        pytest.param({**PLAIN, "temperature": None}, id="a-null-temperature"),
        pytest.param({**PLAIN, "top_p": 0.5}, id="top-p"),
        pytest.param({**PLAIN, "seed": 1}, id="seed"),
        pytest.param({**PLAIN, "stop": ["\n"]}, id="stop"),
        pytest.param({**PLAIN, "max_tokens": 9}, id="max-tokens"),
        pytest.param({**PLAIN, "max_completion_tokens": 9}, id="max-completion-tokens"),
        pytest.param({**PLAIN, "logprobs": True}, id="logprobs"),
        pytest.param({**PLAIN, "logprobs": True, "top_logprobs": 2}, id="top-logprobs"),
        pytest.param({**PLAIN, "logit_bias": {"50256": -100}}, id="logit-bias"),
        pytest.param({**PLAIN, "presence_penalty": 1}, id="presence-penalty"),
        pytest.param({**PLAIN, "frequency_penalty": 1}, id="frequency-penalty"),
        pytest.param(
            {**PLAIN, "response_format": {"type": "json_object"}}, id="format"
        ),
        pytest.param({**PLAIN, "tools": [{"type": "function"}]}, id="tools"),
        pytest.param({**PLAIN, "tool_choice": "none"}, id="tool-choice"),
        pytest.param({**PLAIN, "parallel_tool_calls": False}, id="parallel-tool-calls"),
        pytest.param({**PLAIN, "reasoning_effort": "low"}, id="reasoning-effort"),
        pytest.param({**PLAIN, "user": "u1"}, id="user"),
        pytest.param({**PLAIN, "metadata": {"k": "v"}}, id="metadata"),
        pytest.param({**PLAIN, "not_in_any_api": 1}, id="an-unknown-field"),
        pytest.param(body_of({**QUESTION, "name": "ann"}), id="the-speakers-name"),
        pytest.param(
            body_of(
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "How old is she?"}],
                }
            ),
            id="parts-in-place-of-a-string",
        ),
    ],
)
def test_another_context_never_shares_a_key(other: Body) -> None:
    assert_apart(keys_of(PLAIN), keys_of(other))


def test_different_response_schemas_have_different_contexts() -> None:
    def schema(kind: str) -> Body:
        inner = {"type": "object", "properties": {"age": {"type": kind}}}
        return {"type": "json_schema", "json_schema": {"name": "s", "schema": inner}}

    one, other = schema("number"), schema("string")

    assert_apart(
        keys_of({**PLAIN, "response_format": one}),
        keys_of({**PLAIN, "response_format": other}),
    )


@pytest.mark.parametrize(
    ("one", "other"), [(0.2, 0.21), (0.2, 0.2049), (0.2, 0.20000000000000004), (0, 1)]
)
def test_sampling_parameters_are_not_rounded(one: float, other: float) -> None:
    assert_apart(
        keys_of({**PLAIN, "temperature": one}), keys_of({**PLAIN, "temperature": other})
    )


def test_namespaces_tenants_and_encoders_never_share_a_key() -> None:
    all_keys = [
        keys_of(PLAIN),
        keys_of(PLAIN, namespace="b"),
        keys_of(PLAIN, tenant=b"u"),
        keys_of(PLAIN, tenant=b""),
        keys_of(PLAIN, encoder_id="other"),
        keys_of(PLAIN, namespace="at", tenant=b""),
    ]

    assert len({keys.context_key for keys in all_keys}) == len(all_keys)
    assert len({keys.exact_key for keys in all_keys}) == len(all_keys)


def test_moving_words_between_turns_is_another_context() -> None:
    one = body_of(user("a"), user("b c"), QUESTION)
    other = body_of(user("a b"), user("c"), QUESTION)

    assert_apart(keys_of(one), keys_of(other))


def test_another_question_in_the_same_context_shares_the_context_key() -> None:
    assert_apart(
        keys_of(PLAIN), keys_of(body_of(user("How tall is she?"))), context=False
    )


def test_prompts_that_share_a_long_beginning_have_different_exact_keys() -> None:
    shared = "x" * 4_020

    assert_apart(
        keys_of(body_of(user(f"{shared} a"))),
        keys_of(body_of(user(f"{shared} b"))),
        context=False,
    )


def test_parts_are_told_apart_by_where_they_end() -> None:
    def parts(*texts: str) -> Body:
        content = [{"type": "text", "text": text} for text in texts]
        return body_of({"role": "user", "content": content})

    assert_apart(keys_of(parts("a b", "c")), keys_of(parts("a", "b c")), context=False)
    assert_apart(keys_of(parts("a", "b")), keys_of(parts("a\nb")))


def test_an_image_is_part_of_the_exact_key_and_is_never_compared_by_meaning() -> None:
    def seen(url: str) -> Body:
        parts = [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": url}},
        ]
        return body_of({"role": "user", "content": parts})

    one, other = (
        keys_of(seen("https://a.example/1")),
        keys_of(seen("https://a.example/2")),
    )

    assert one.exact_key != other.exact_key
    assert one.prompt is None


# ---- what must not tell requests apart ----------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({**PLAIN, "stream": True}, id="streamed"),
        pytest.param({**PLAIN, "stream": False}, id="said-not-to-stream"),
        pytest.param(
            {**PLAIN, "stream": True, "stream_options": {"include_usage": True}},
            id="with-usage-in-the-stream",
        ),
        pytest.param(body_of(user("  how old is she?\n")), id="normalised-equal"),
    ],
)
def test_the_same_request_in_other_clothes_has_the_same_keys(other: Body) -> None:
    one, same = keys_of(PLAIN), keys_of(other)

    assert (one.context_key, one.exact_key) == (same.context_key, same.exact_key)


def test_numbers_that_are_equal_are_one_key() -> None:
    one, other = keys_of({**PLAIN, "top_p": 1}), keys_of({**PLAIN, "top_p": 1.0})

    assert one.exact_key == other.exact_key


scalars = (
    st.none() | st.booleans() | st.integers(-99, 99) | st.floats(-9, 9) | st.text()
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
RESERVED = {
    "model", "messages", "stream", "stream_options", "n", "temperature", "top_p",
    "max_tokens", "max_completion_tokens",
}  # fmt: skip
parameters = st.dictionaries(
    st.text().filter(lambda name: name not in RESERVED), values
)
turns = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "tool"])},
    optional={"content": values, "name": values},
)
bodies = st.builds(
    lambda model, messages, fields: {"model": model, "messages": messages, **fields},
    st.text(min_size=1),
    st.lists(turns, min_size=1, max_size=4),
    parameters,
)


@given(one=bodies, other=bodies)
def test_different_requests_have_different_exact_keys(one: Body, other: Body) -> None:
    assume(canonical(one) != canonical(other))
    same = keys_of(one).exact_key == keys_of(other).exact_key

    assert not same or keys_of(one).prompt == keys_of(other).prompt is not None


@given(
    body=bodies, name=st.text().filter(lambda name: name not in RESERVED), value=values
)
def test_a_change_of_any_field_changes_both_keys(
    body: Body, name: str, value: object
) -> None:
    changed = {**body, name: value}
    assume(canonical(changed) != canonical(body))

    assert keys_of(changed).context_key != keys_of(body).context_key
    assert keys_of(changed).exact_key != keys_of(body).exact_key


@given(body=bodies, turn=turns, other=turns, at=st.integers(0, 3))
def test_a_change_of_any_earlier_turn_changes_the_context(
    body: Body, turn: Body, other: Body, at: int
) -> None:
    assume(canonical(turn) != canonical(other))
    messages = body["messages"]
    assert isinstance(messages, list)
    at = min(at, len(messages) - 1)
    one, changed, longer = (
        keys_of({**body, "messages": [*messages[:at], *earlier, *messages[at:]]})
        for earlier in ([turn], [other], [turn, other])
    )

    assert len({one.context_key, changed.context_key, longer.context_key}) == 3
    assert len({one.exact_key, changed.exact_key, longer.exact_key}) == 3


def _reordered(value: object) -> object:
    if isinstance(value, dict):
        return {name: _reordered(value[name]) for name in reversed(value)}
    if isinstance(value, list):
        return [_reordered(item) for item in value]
    return value


@given(body=bodies, indent=st.sampled_from([None, 0, 3]), ascii_only=st.booleans())
def test_formatting_and_order_of_json_are_nothing(
    body: Body, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(_reordered(body), indent=indent, ensure_ascii=ascii_only)
    request = parse_chat(text.encode())
    keys = derive_keys(request, Namespace("a"), b"t", EncoderId("minilm"))

    assert keys.exact_key == keys_of(body).exact_key
    assert keys.request_hash == keys_of(body).request_hash


# ---- hashes beside the keys ---------------------------------------------------------


def test_the_request_hash_is_that_of_the_canonical_body_without_stream() -> None:
    body = {**PLAIN, "seed": 1}

    keys = keys_of({**body, "stream": True, "stream_options": {}})

    assert keys.request_hash == sha256(canonical(body)).digest()


def test_a_prompt_hash_needs_the_key_and_the_exact_words() -> None:
    expected = hmac.digest(b"k", b"cachemind/prompt/v1\0Hi", "sha256")

    assert prompt_hash(b"k", "Hi") == expected
    assert len({prompt_hash(b"k", "hi"), prompt_hash(b"l", "Hi"), expected}) == 3


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(user("  Hi "), "  Hi ", id="text-is-not-normalised"),
        pytest.param(
            {"role": "tool", "content": "x"},
            '{"content":"x","role":"tool"}',
            id="other",
        ),
    ],
)
def test_the_prompt_text_is_what_came(message: Body, expected: str) -> None:
    assert prompt_text(parse_chat(json.dumps(body_of(message)).encode())) == expected


@pytest.mark.parametrize("field", ["unknown", "messages"])
def test_nesting_too_deep_to_hash_is_the_clients_error(field: str) -> None:
    deep: object = "x"
    for _ in range(300):
        deep = [deep]
    body = (
        {**PLAIN, "unknown": deep}
        if field == "unknown"
        else body_of({"role": "user", "content": deep})
    )

    with pytest.raises(InvalidRequest, match="nested"):
        keys_of(body)
