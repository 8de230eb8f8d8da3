from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.admission import Admitted, NotAdmitted, decide_admission
from cachemind.core.cache_control import Controls, Mode, tighten
from cachemind.core.confidence import MalformedLogprobs, confidence_of
from cachemind.core.policy import Policy, Volatile
from cachemind.core.request import ChatRequest, parse_chat
from cachemind.core.volatile import volatile

DAY_MS = 24 * 3_600 * 1_000
Json = dict[str, object]


def asked(text: str = "Name a colour", /, **fields: object) -> ChatRequest:
    messages = [{"role": "user", "content": text}]
    return parse_chat(
        json.dumps({"model": "m", "messages": messages, **fields}).encode()
    )


def choice(
    content: str | None = "Blue", finish: str | None = "stop", **rest: object
) -> Json:
    return {
        "index": 0,
        "message": {"role": "assistant", "content": content},
        "finish_reason": finish,
        **rest,
    }


def completion(*choices: Json, **fields: object) -> Json:
    return {"object": "chat.completion", "choices": list(choices), **fields}


def decide(
    answer: Mapping[str, object] | None = None,
    *,
    request: ChatRequest | None = None,
    policy: Policy | None = None,
    controls: Controls | None = None,
    ambiguous: bool = False,
    status: int = 200,
    response_bytes: int = 100,
) -> Admitted | NotAdmitted:
    policy = policy or Policy()
    return decide_admission(
        policy=policy,
        effective=tighten(policy, controls or Controls()),
        request=request or asked(),
        body_ambiguous=ambiguous,
        upstream_status=status,
        streamed=False,
        completion=completion(choice()) if answer is None else answer,
        response_bytes=response_bytes,
    )


def ttl_of(decision: Admitted | NotAdmitted) -> int:
    assert isinstance(decision, Admitted)
    return decision.ttl_ms


def test_a_complete_answer_is_admitted_for_the_policys_ttl() -> None:
    decision = decide()

    assert isinstance(decision, Admitted)
    assert (decision.ttl_ms, decision.finish_reason) == (DAY_MS, "stop")
    assert decision.evidence.rule == "policy-default"
    assert decision.evidence.upstream_status == 200
    assert decision.evidence.entropy_nats is None


@pytest.mark.parametrize("status", [199, 301, 400, 429, 500, 0])
def test_only_2xx_is_admitted(status: int) -> None:
    assert decide(status=status) == NotAdmitted("upstream-status")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(
            {"error": {"message": "x"}}, "upstream-error", id="error-with-200"
        ),
        pytest.param({}, "choices-missing", id="no-choices"),
        pytest.param(completion(), "choices-missing", id="empty-choices"),
        pytest.param({"choices": "x"}, "choices-missing", id="choices-not-a-list"),
        pytest.param({"choices": [None]}, "choices-missing", id="choice-not-an-object"),
        pytest.param(completion(choice(), choice()), "choices-missing", id="too-many"),
        pytest.param(completion(choice(finish=None)), "unfinished", id="no-reason"),
        pytest.param(completion(choice(finish="length")), "unfinished", id="cut-short"),
        pytest.param(
            completion(choice(finish="eos?")), "unfinished", id="unknown-reason"
        ),
        pytest.param(
            completion(choice(finish="content_filter")), "content-filter", id="filtered"
        ),
        pytest.param(completion(choice("")), "empty", id="empty-text"),
        pytest.param(completion(choice(" \n")), "empty", id="blank-text"),
        pytest.param(completion(choice(None)), "empty", id="null-text"),
        pytest.param(completion({"finish_reason": "stop"}), "empty", id="no-message"),
        pytest.param(
            completion({"finish_reason": "tool_calls", "message": {"tool_calls": []}}),
            "empty",
            id="no-tool-calls",
        ),
        pytest.param(
            completion({"message": {"content": "x"}}), "unfinished", id="reasonless"
        ),
        pytest.param(
            completion({"finish_reason": ["stop"], "message": {"content": "x"}}),
            "unfinished",
            id="reason-is-a-list",
        ),
    ],
)
def test_an_answer_that_is_not_whole_is_not_admitted(answer: Json, reason: str) -> None:
    assert decide(answer) == NotAdmitted(reason)


@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
def test_a_cut_that_the_request_asked_for_is_whole(limit: str) -> None:
    answer = completion(choice(finish="length"))

    decision = decide(answer, request=asked(**{limit: 5}))

    assert isinstance(decision, Admitted)
    assert decision.finish_reason == "length"


@pytest.mark.parametrize(
    "message",
    [
        {"content": None, "tool_calls": [{"id": "c", "type": "function"}]},
        {"content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"content": None, "refusal": "I cannot help with that."},
        {"content": None, "audio": {"id": "a"}},
    ],
)
def test_an_answer_need_not_be_text(message: Json) -> None:
    answer = completion({"finish_reason": "stop", "message": message})

    assert isinstance(decide(answer), Admitted)


@pytest.mark.parametrize("given_choices", [1, 2, 4])
def test_only_as_many_choices_as_asked_for_are_admitted(given_choices: int) -> None:
    """Complaint: `n` choices were asked for and fewer were stored."""
    answer = completion(*[choice()] * given_choices)

    decision = decide(answer, request=asked(n=3))

    assert decision == NotAdmitted("choices-missing")


def test_every_one_of_several_choices_must_be_complete() -> None:
    request = asked(n=2)

    assert isinstance(decide(completion(choice(), choice()), request=request), Admitted)
    assert decide(completion(choice(), choice(finish=None)), request=request) == (
        NotAdmitted("unfinished")
    )


@pytest.mark.parametrize(
    ("controls", "reason"),
    [
        (Controls(no_store=True), "no-store"),
        (Controls(mode=Mode.OFF), "bypass"),
    ],
)
def test_what_the_request_forbade_is_not_stored(
    controls: Controls, reason: str
) -> None:
    assert decide(controls=controls) == NotAdmitted(reason)


def test_an_ambiguous_body_is_never_admitted() -> None:
    assert decide(ambiguous=True) == NotAdmitted("ambiguous-body")


def test_an_entry_past_the_size_limit_is_not_admitted() -> None:
    policy = Policy(max_entry_bytes=100)

    assert isinstance(decide(policy=policy, response_bytes=100), Admitted)
    assert decide(policy=policy, response_bytes=101) == NotAdmitted("too-large")


@pytest.mark.parametrize(
    ("asked_ttl", "max_ttl", "expected"),
    [
        pytest.param(1_000, 7 * DAY_MS, 1_000, id="shorter-is-granted"),
        pytest.param(9 * DAY_MS, 7 * DAY_MS, DAY_MS, id="longer-is-not"),
        pytest.param(None, 500, 500, id="policys-maximum"),
    ],
)
def test_a_ttl_is_the_shortest_of_all(
    asked_ttl: int | None, max_ttl: int, expected: int
) -> None:
    decision = decide(
        policy=Policy(max_ttl_ms=max_ttl), controls=Controls(ttl_ms=asked_ttl)
    )

    assert ttl_of(decision) == expected


# ---- the model's own confidence ------------------------------------------------------


def token(*chances: float) -> Json:
    """One token of chance `chances[0]`; with all of them as alternatives."""
    tops = [{"token": str(i), "logprob": math.log(p)} for i, p in enumerate(chances)]
    return {"token": "0", "logprob": math.log(chances[0]), "top_logprobs": tops}


def sure(*tokens: Json) -> Json:
    return completion(choice(logprobs={"content": list(tokens)}))


@pytest.mark.parametrize(
    ("answer", "rule", "ttl_ms"),
    [
        pytest.param(
            sure(token(0.99, 0.01)), "confidence-strong", 7 * DAY_MS, id="strong"
        ),
        pytest.param(
            sure(token(0.8, 0.2)), "confidence-middling", 30_000, id="middling"
        ),
        pytest.param(
            sure(*[token(0.99, 0.01)] * 9, token(0.1, 0.1, 0.1)),
            "confidence-strong",
            7 * DAY_MS,
            id="one-doubtful-token-of-ten",
        ),
        pytest.param(
            sure(token(0.7, *[0.02] * 15)),
            "confidence-middling",
            30_000,
            id="spread-tail",
        ),
        pytest.param(
            completion(choice(logprobs={"content": [{"logprob": -0.01}]})),
            "confidence-strong",
            7 * DAY_MS,
            id="no-alternatives",
        ),
        pytest.param(
            completion(choice(logprobs={"content": [], "refusal": None})),
            "policy-default",
            DAY_MS,
            id="no-tokens",
        ),
        pytest.param(
            completion(choice(logprobs=None)), "policy-default", DAY_MS, id="null"
        ),
        pytest.param(
            completion(choice(logprobs={"content": [{"logprob": "x"}]})),
            "logprobs-malformed",
            30_000,
            id="malformed",
        ),
    ],
)
def test_confidence_sets_the_ttl(answer: Json, rule: str, ttl_ms: int) -> None:
    decision = decide(answer)

    assert isinstance(decision, Admitted)
    assert (decision.evidence.rule, decision.ttl_ms) == (rule, ttl_ms)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(sure(token(0.2, 0.2, 0.2, 0.2, 0.2)), id="even-alternatives"),
        pytest.param(
            completion(choice(logprobs={"content": [{"logprob": -2.0}]})), id="unlikely"
        ),
        pytest.param(
            completion(choice(logprobs={"content": [{"logprob": -9999.0}]})),
            id="off-the-list",
        ),
    ],
)
def test_an_answer_the_model_doubts_is_never_admitted(answer: Json) -> None:
    assert decide(answer) == NotAdmitted("confidence-low")


def test_the_least_sure_choice_decides() -> None:
    doubtful = {"content": [token(0.2, 0.2, 0.2, 0.2, 0.2)]}
    answer = completion(
        choice(logprobs={"content": [token(0.99, 0.01)]}), choice(logprobs=doubtful)
    )

    assert decide(answer, request=asked(n=2)) == NotAdmitted("confidence-low")


def test_the_evidence_carries_the_figures() -> None:
    decision = decide(sure(token(0.5, 0.5), token(1.0)))

    assert isinstance(decision, Admitted)
    assert decision.evidence.entropy_nats == pytest.approx(math.log(2) / 2)
    assert decision.evidence.confidence_ratio == pytest.approx(0.75)


def test_what_alternatives_leave_over_counts_as_one_more_outcome() -> None:
    figures = confidence_of(choice(logprobs={"content": [token(0.5, 0.25)]}))

    assert figures is not None
    assert figures.entropy_nats == pytest.approx(1.5 * math.log(2))


def test_a_token_off_the_list_counts_as_one_of_a_whole_vocabulary() -> None:
    figures = confidence_of(choice(logprobs={"content": [{"logprob": -9999.0}]}))

    assert figures is not None
    assert figures.entropy_nats == pytest.approx(18 * math.log(2))
    assert figures.confidence_ratio == 0


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["content", "refusal", "logprob", "top_logprobs"]), inner
        )
    ),
    max_leaves=8,
)


@given(logprobs=json_values)
def test_any_logprobs_give_sound_figures_or_are_malformed(logprobs: object) -> None:
    try:
        figures = confidence_of({"logprobs": logprobs})
    except MalformedLogprobs:
        return
    if figures is not None:
        assert 0 <= figures.confidence_ratio <= 1
        assert 0 <= figures.entropy_nats < math.inf


@given(answer=st.dictionaries(st.sampled_from(["choices", "error"]), json_values))
def test_any_completion_is_decided_without_an_error(answer: Json) -> None:
    decide(answer)


# ---- prompts about the present (complaint: time-dependent questions were cached) -----


@pytest.mark.parametrize(
    "text",
    [
        "What is the weather in Berlin?",
        "Will it rain in Oslo tomorrow?",
        "What time is it?",
        "what's the time in Tokyo",
        "What’s the time",  # noqa: RUF001
        "What day is it?",
        "What is today's date?",
        "Who is the current president of France?",
        "What is the latest version of Python?",
        "What is the price of bitcoin?",
        "Apple stock price",
        "Give me the news headlines",
        "Who is winning the match?",
        "How many people are in space right now?",
        "What should I cook now?",
        "How old is Keanu Reeves?",
        "Is the museum open?",
        "USD to EUR exchange rate",
        "How many days until Christmas?",
        "What happened this week?",
        "What are recent papers on caching?",
    ],
)
def test_a_prompt_about_the_present_is_volatile(text: str) -> None:
    assert decide(request=asked(text)) == NotAdmitted("volatile-prompt")


@pytest.mark.parametrize(
    "text",
    [
        "What is the capital of France?",
        "How do I reverse a list in Python?",
        "Explain electric charge",
        "Now write the same function in Rust",
        "When was the Eiffel Tower built?",
        "Who won the World Cup in 1998?",
        "What is the time complexity of merge sort?",
        "How do I update a row in SQL?",
        "Is Pluto a planet?",
        "Translate the word Monday into German",
        "Explain electric current",
        "How do I know whether a number is prime?",
    ],
)
def test_a_prompt_whose_answer_lasts_is_not_volatile(text: str) -> None:
    assert isinstance(decide(request=asked(text)), Admitted)


def test_an_earlier_turn_about_the_present_makes_the_follow_up_volatile() -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Weather in Berlin?"}]},
        {"role": "assistant", "content": "Rain."},
        {"role": "user", "content": "And in Paris?"},
    ]
    body = json.dumps({"model": "m", "messages": messages}).encode()

    assert decide(request=parse_chat(body)) == NotAdmitted("volatile-prompt")


def test_a_policy_may_keep_volatile_answers_for_a_short_time() -> None:
    policy = Policy(volatile=Volatile.SHORT)

    decision = decide(request=asked("What time is it?"), policy=policy)

    assert isinstance(decision, Admitted)
    assert (decision.evidence.rule, decision.ttl_ms) == ("volatile-short", 30_000)


@given(texts=st.lists(st.text(), max_size=3))
def test_any_texts_are_classed_without_an_error(texts: Sequence[str]) -> None:
    volatile(texts)
