"""How sure the model was, from the logprobs it gave."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_LOWEST_LOGPROB: Final = -math.log(1 << 18)
"""Of a token drawn evenly from 262,144. APIs write -9999 for "off the list"; as a
measure of entropy nothing below this means more."""

_ROUNDING: Final = 1e-3
"""A logprob this far above zero is a rounded zero, not an error."""


@dataclass(frozen=True, slots=True)
class Confidence:
    """Mean token entropy (nats) and mean token probability (0 to 1) of an answer."""

    entropy_nats: float
    confidence_ratio: float


class MalformedLogprobs(ValueError):
    """Logprobs are there, but are not what the API defines."""


def confidence_of(choice: Mapping[str, object]) -> Confidence | None:
    """Return how sure the model was of one choice, None where it gave no logprobs.

    A token's entropy is that of its `top_logprobs` and of the rest as one more
    outcome; without alternatives, its surprisal, whose mean estimates the entropy.
    Raises: `MalformedLogprobs`.
    """
    logprobs = choice.get("logprobs")
    if logprobs is None:
        return None
    if not isinstance(logprobs, Mapping):
        raise MalformedLogprobs
    tokens = [*_list(logprobs.get("content")), *_list(logprobs.get("refusal"))]
    if not tokens:
        return None
    chances = [math.exp(_logprob(token)) for token in tokens]
    entropies = [_entropy(token) for token in tokens]
    return Confidence(
        math.fsum(entropies) / len(tokens), math.fsum(chances) / len(tokens)
    )


def _entropy(token: object) -> float:
    chosen = max(_logprob(token), _LOWEST_LOGPROB)
    alternatives = (
        _list(token.get("top_logprobs")) if isinstance(token, Mapping) else ()
    )
    if not alternatives:
        return -chosen
    chances = [math.exp(_logprob(alternative)) for alternative in alternatives]
    rest = 1.0 - math.fsum(chances)
    return math.fsum(-p * math.log(p) for p in (*chances, rest) if p > 0)


def _logprob(token: object) -> float:
    value = token.get("logprob") if isinstance(token, Mapping) else None
    if type(value) not in (int, float) or not isinstance(value, int | float):
        raise MalformedLogprobs
    if not (math.isfinite(value) and value <= _ROUNDING):
        raise MalformedLogprobs
    return min(float(value), 0.0)


def _list(value: object) -> Sequence[object]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise MalformedLogprobs
    return value
