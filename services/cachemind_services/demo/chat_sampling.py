"""What a request asks of the model, and what the model gives: plain values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

SERVED_TOKENS: Final = 2_048
"""Longest prompt plus answer; the model could do more, this machine could not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to draw tokens. `temperature` 0 takes the likeliest one.

    `seed` None draws afresh each time. `top_logprobs` counts alternatives a token.
    """

    temperature: float
    top_p: float
    max_tokens: int
    stop: tuple[str, ...]
    seed: int | None
    top_logprobs: int

    def of_choice(self, index: int) -> Self:
        """Return the sampling of choice `index` of several: each its own seed."""
        return self if self.seed is None else replace(self, seed=self.seed + index)


@dataclass(frozen=True, slots=True)
class Scored:
    """A token's bytes and its natural log probability under the model."""

    text: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class Token:
    """A drawn token and the likeliest alternatives, best first.

    Log probabilities are the model's own, before temperature and top_p.
    """

    chosen: Scored
    top: tuple[Scored, ...]


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of an answer. `finish` is `stop` or `length` on the last one."""

    text: str
    tokens: tuple[Token, ...]
    finish: str | None = None
