"""Rules that tell two prompts apart which an encoder finds alike."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

Guard = Callable[[str, str], bool]
"""True where two prompts differ in what the guard watches. Total; symmetric."""

_NUMBER: Final = re.compile(r"\d+(?:[.,]\d+)*")
_NEGATION: Final = re.compile(r"\b(?:not|no|never|without|cannot)\b|n['’]t\b", re.I)  # noqa: RUF001


def numbers_differ(one: str, other: str) -> bool:
    """Return whether the prompts hold different numbers."""
    return sorted(_NUMBER.findall(one)) != sorted(_NUMBER.findall(other))


def negation_differs(one: str, other: str) -> bool:
    """Return whether one prompt negates and the other does not."""
    return len(_NEGATION.findall(one)) % 2 != len(_NEGATION.findall(other)) % 2


GUARDS: Final[tuple[tuple[str, Guard], ...]] = (
    ("guard-number", numbers_differ),
    ("guard-negation", negation_differs),
)


def blocked_by(one: str, other: str) -> str | None:
    """Return the word of the first guard that tells the prompts apart, else None."""
    return next((word for word, differ in GUARDS if differ(one, other)), None)
