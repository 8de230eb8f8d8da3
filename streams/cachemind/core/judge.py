"""Which candidate, if any, answers this prompt: candidates -> judge -> verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cachemind.core.guard_words import Reading, read
from cachemind.core.guards import blocked_readings
from cachemind.types import ExactKey

LONGEST_COMPARED_WORDS: Final = 256
"""The encoder's window in word pieces; a word is at least one piece."""

_ABOVE_ONE: Final = 1e-3
"""Rounding may carry the cosine of equal float16 vectors this far above one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A stored prompt of the same context. `similarity` is a cosine: 1 is closest."""

    key: ExactKey
    prompt: str
    similarity: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict. `reasons` holds one fixed word for each rejected candidate, the
    closest first; empty where the closest was accepted or there was none.
    """

    accepted: Candidate | None
    reasons: tuple[str, ...]


def judge(prompt: str, candidates: Sequence[Candidate], threshold: float) -> Judgement:
    """Return the closest candidate that passes every check; any doubt is a miss.

    1. Every similarity is a cosine, else none is trusted: a percentage or an
       unbounded score is another scale, and its order may be another too.
    2. The prompt fits the encoder's window: long texts that share a beginning get
       the same vector.
    Then, for each candidate from the closest on:
    3. it reaches `threshold`;
    4. it fits the window too, and no guard tells the prompts apart.
    """
    if not all(_is_cosine(candidate.similarity) for candidate in candidates):
        return Judgement(accepted=None, reasons=("similarity-scale",))
    reasons: list[str] = []
    asked = read(prompt)
    if len(asked.tokens) > LONGEST_COMPARED_WORDS:
        return Judgement(accepted=None, reasons=("past-window",))
    for candidate in sorted(candidates, key=_closest_first):
        reason = _rejection(asked, candidate, threshold)
        if reason is None:
            return Judgement(accepted=candidate, reasons=tuple(reasons))
        reasons.append(reason)
    return Judgement(accepted=None, reasons=tuple(reasons))


def _rejection(asked: Reading, candidate: Candidate, threshold: float) -> str | None:
    if not candidate.similarity >= threshold:
        return "below-threshold"
    stored = read(candidate.prompt)
    if len(stored.tokens) > LONGEST_COMPARED_WORDS:
        return "past-window"
    return blocked_readings(asked, stored)


def _is_cosine(similarity: float) -> bool:
    return -1.0 - _ABOVE_ONE <= similarity <= 1.0 + _ABOVE_ONE


def _closest_first(candidate: Candidate) -> tuple[float, bytes]:
    return (-candidate.similarity, candidate.key)
