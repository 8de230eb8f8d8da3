"""The demo upstream as a process, with its real model and the real client."""

from __future__ import annotations

import math
import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from cachemind.adapters.encoder_cache import open_embedder
from cachemind.core.guards import blocked_by
from cachemind.events import Outcome
from cachemind.ports import Embedder
from cachemind_services.broker.distribution import default_cache_dir
from cachemind_services.demo.chat_weights import MODEL_NAME
from cachemind_services.demo.drive import STEPS, Step
from cachemind_services.supervisor import own_command
from tests.contracts.embedder_contract import cosine

THRESHOLD = 0.92
START_S = 170.0
ASK: dict[str, Any] = {
    "model": MODEL_NAME,
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "temperature": 0,
    "max_tokens": 12,
}

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    """The URL of a demo upstream on a free port."""
    command = own_command("demo-upstream", "--port", "0")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        late = threading.Timer(START_S, process.kill)
        late.start()
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert " at http://" in line
            yield line.split()[-1]
        finally:
            late.cancel()
            process.terminate()
        # uvicorn ends by the signal that it was stopped with.
        assert process.wait(15) in (0, -signal.SIGTERM)


@pytest.fixture
def client(upstream: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=upstream, api_key="any", max_retries=0) as opened:
        yield opened


def test_the_model_knows_the_capital_of_france(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**ASK)
    (choice,) = answer.choices
    assert "Paris" in (choice.message.content or "")
    assert choice.finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens > 10
    assert 0 < answer.usage.completion_tokens <= 12


def test_stream_and_whole_answer_are_the_same(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(**ASK, logprobs=True, top_logprobs=3)
    chunks = list(
        client.chat.completions.create(
            **ASK,
            logprobs=True,
            top_logprobs=3,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    said = "".join(choice.delta.content or "" for choice in choices)
    scored = [
        token
        for choice in choices
        if choice.logprobs is not None
        for token in choice.logprobs.content or ()
    ]
    assert said == whole.choices[0].message.content
    assert choices[-1].finish_reason == whole.choices[0].finish_reason
    assert chunks[-1].usage == whole.usage
    assert whole.choices[0].logprobs is not None
    assert scored == whole.choices[0].logprobs.content


def test_logprobs_are_the_models_own(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**ASK, logprobs=True, top_logprobs=20)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content
    for token in logprobs.content:
        best = [each.logprob for each in token.top_logprobs]
        assert token.logprob == best[0] == max(best)
        assert 0.0 < sum(map(math.exp, best)) <= 1.0001
    said = b"".join(bytes(token.bytes or ()) for token in logprobs.content)
    assert said.decode() == answer.choices[0].message.content


def test_a_seed_repeats_an_answer_and_another_one_does_not(
    client: openai.OpenAI,
) -> None:
    warm = {**ASK, "temperature": 2, "top_p": 1, "max_tokens": 6}

    def answer(seed: int) -> object:
        answered = client.chat.completions.create(**warm, seed=seed)
        return answered.choices[0].message.content

    assert answer(1) == answer(1) != answer(2)


def test_a_client_that_leaves_frees_the_model(client: openai.OpenAI) -> None:
    long = {**ASK, "max_tokens": 1_000, "temperature": 2, "seed": 7}
    with client.chat.completions.create(**long, stream=True) as stream:
        next(iter(stream))
    answer = client.with_options(timeout=30).chat.completions.create(**ASK)
    assert answer.choices[0].finish_reason == "stop"


def test_another_model_is_not_found(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL_NAME]
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(**{**ASK, "model": "other"})


# ---- the demo's questions ------------------------------------------------------------


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return open_embedder(default_cache_dir())


def _step(title: str) -> Step:
    return next(step for step in STEPS if step.title == title)


def test_the_demos_paraphrase_is_one_to_encoder_and_guards(embedder: Embedder) -> None:
    asked, reworded = _step("question"), _step("paraphrase")
    assert reworded.expected is Outcome.HIT_SEMANTIC
    similarity = cosine(embedder.embed(asked.prompt), embedder.embed(reworded.prompt))
    assert similarity >= THRESHOLD
    assert blocked_by(asked.prompt, reworded.prompt) is None


@pytest.mark.parametrize(
    ("title", "guard"),
    [
        ("trap: other number", "guard-number"),
        ("trap: negation", "guard-negation"),
    ],
)
def test_only_a_guard_keeps_the_demos_traps_from_a_hit(
    embedder: Embedder, title: str, guard: str
) -> None:
    asked, trap = _step("question"), _step(title)
    assert trap.expected is Outcome.MISS
    similarity = cosine(embedder.embed(asked.prompt), embedder.embed(trap.prompt))
    assert similarity >= THRESHOLD
    assert blocked_by(asked.prompt, trap.prompt) == guard
