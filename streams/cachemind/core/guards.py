"""Rules that tell two prompts apart which an encoder finds alike.

Encoders place "turn it on" beside "turn it off" and "15 %" beside "50 %", so no
threshold on similarity separates them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cachemind.core.guard_calendar import dates_differ
from cachemind.core.guard_direction import direction_differs
from cachemind.core.guard_numbers import numbers_differ, units_differ
from cachemind.core.guard_polarity import negation_differs, polarity_differs
from cachemind.core.guard_subject import names_differ, questions_differ
from cachemind.core.guard_units import TIME_UNITS, UNITS
from cachemind.core.guard_words import Reading, read

Guard = Callable[[Reading, Reading], bool]
"""True where two prompts differ in what the guard watches. Total and symmetric."""


def blocked_by(one: str, other: str) -> str | None:
    """Return the word of the first guard that tells the prompts apart, else None."""
    return blocked_readings(read(one), read(other))


def blocked_readings(one: Reading, other: Reading) -> str | None:
    """Return the word of the first guard that tells two readings apart, else None."""
    return next((word for word, differ in GUARDS if differ(one, other)), None)


def _numbers(one: Reading, other: Reading) -> bool:
    return numbers_differ(one.quantities, other.quantities)


def _units(one: Reading, other: Reading) -> bool:
    if units_differ(one.quantities, other.quantities):
        return True
    mine, theirs = _periods(one), _periods(other)
    return bool(mine and theirs) and mine != theirs


def _periods(reading: Reading) -> set[str]:
    return {UNITS[word] for word in reading.vocabulary & _PERIODS}


_PERIODS: Final = frozenset(word for word in UNITS if UNITS[word] in TIME_UNITS)

GUARDS: Final[tuple[tuple[str, Guard], ...]] = (
    ("guard-number", _numbers),
    ("guard-unit", _units),
    ("guard-date", dates_differ),
    ("guard-negation", negation_differs),
    ("guard-polarity", polarity_differs),
    ("guard-name", names_differ),
    ("guard-question", questions_differ),
    ("guard-direction", direction_differs),
)
