"""Six kinds of question through the gateway with the real `openai` client.

Everything shown comes from the answers' own headers.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cachemind.errors import CacheError
from cachemind.events import Outcome
from cachemind_services.demo.chat_weights import MODEL_NAME

if TYPE_CHECKING:
    from openai import OpenAI

ANSWER_TOKENS: Final = 24
TIMEOUT_S: Final = 60.0
_QUESTION: Final = "What are 3 benefits of regular exercise?"
_TEACHER: Final = "You are a teacher. Answer in one sentence."
_LAWYER: Final = "You are a lawyer. Answer in one sentence."
_DETAIL: Final = re.compile(r"detail=([\w-]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One question and how the cache ought to answer it."""

    title: str
    prompt: str
    expected: Outcome
    system: str = _TEACHER
    stream: bool = False


STEPS: Final = (
    Step(title="question", prompt=_QUESTION, expected=Outcome.MISS),
    Step(title="exact repeat", prompt=_QUESTION, expected=Outcome.HIT_EXACT),
    Step(
        title="paraphrase",
        prompt="What are the 3 benefits of exercising regularly?",
        expected=Outcome.HIT_SEMANTIC,
    ),
    Step(
        title="other system prompt",
        prompt=_QUESTION,
        system=_LAWYER,
        expected=Outcome.MISS,
    ),
    # Both traps are nearer to the question than the paraphrase is.
    Step(
        title="trap: other number",
        prompt="What are 5 benefits of regular exercise?",
        expected=Outcome.MISS,
    ),
    Step(
        title="trap: negation",
        prompt="What are not 3 benefits of regular exercise?",
        expected=Outcome.MISS,
    ),
    Step(
        title="streamed repeat",
        prompt=_QUESTION,
        stream=True,
        expected=Outcome.HIT_EXACT,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one step got. `latency_ms` is until the whole answer was in."""

    step: Step
    outcome: str
    reason: str
    similarity: str
    version: str
    lsn: str
    latency_ms: float
    answer: str

    @property
    def right(self) -> bool:
        """Return whether the cache did what it ought to."""
        return self.outcome == self.step.expected


def drive(gateway: str, steps: Sequence[Step] = STEPS) -> list[Row]:
    """Ask each step's question at `gateway` (its URL without `/v1`), in order.

    Raises: `CacheError` where one gets no answer.
    """
    client = _client(gateway)
    try:
        return [ask(client, step) for step in steps]
    finally:
        client.close()


def ask(client: OpenAI, step: Step) -> Row:
    """Return what the gateway made of one question."""
    from openai import OpenAIError

    began = time.perf_counter()
    try:
        headers, answer = _answer(client, step)
    except OpenAIError as error:
        # Its message may quote what was said.
        status = getattr(error, "status_code", "no status")
        raise CacheError(f"{step.title}: {type(error).__name__}, {status}") from error
    found = _DETAIL.search(headers.get("cache-status", ""))
    return Row(
        step=step,
        outcome=headers.get("x-cachemind-outcome", ""),
        reason=found[1] if found else "",
        similarity=headers.get("x-cachemind-similarity", ""),
        version=headers.get("x-cachemind-version", ""),
        lsn=headers.get("x-cachemind-lsn", ""),
        latency_ms=(time.perf_counter() - began) * 1e3,
        answer=answer,
    )


def render(rows: Sequence[Row]) -> str:
    """Return the rows as a table, each answer's beginning below its row."""
    heads = ("step", "outcome", "similarity", "version", "LSN", "ms", "reason", "")
    cells = [heads, *(_cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in cells
    ]
    ruled = [lines[0], "-" * max(map(len, lines)), *lines[1:]]
    said = [
        f"{row.step.title}: {row.step.prompt}\n    {' '.join(row.answer.split())}"
        for row in rows
    ]
    return "\n".join([*(line.rstrip() for line in ruled), "", *said])


def _cells(row: Row) -> tuple[str, ...]:
    expected = "" if row.right else f"EXPECTED {row.step.expected}"
    return (
        row.step.title,
        row.outcome or "-",
        row.similarity or "-",
        row.version or "-",
        row.lsn or "-",
        f"{row.latency_ms:.1f}",
        row.reason or "-",
        expected,
    )


def _client(gateway: str) -> OpenAI:
    try:
        from openai import OpenAI
    except ModuleNotFoundError as error:
        raise CacheError("the demo needs the client: pip install openai") from error
    return OpenAI(
        base_url=f"{gateway.rstrip('/')}/v1",
        api_key="demo",
        max_retries=0,
        timeout=TIMEOUT_S,
    )


def _answer(client: OpenAI, step: Step) -> tuple[Mapping[str, str], str]:
    ask: dict[str, Any] = {
        "model": MODEL_NAME,
        "messages": [
            {"role": "system", "content": step.system},
            {"role": "user", "content": step.prompt},
        ],
        # Named, because an answer that was cut without being asked is not admitted.
        "max_tokens": ANSWER_TOKENS,
        "temperature": 0,
    }
    completions = client.chat.completions.with_raw_response
    if not step.stream:
        raw = completions.create(**ask)
        return raw.headers, raw.parse().choices[0].message.content or ""
    raw = completions.create(**ask, stream=True)
    pieces = [
        chunk.choices[0].delta.content or "" for chunk in raw.parse() if chunk.choices
    ]
    return raw.headers, "".join(pieces)
