"""The days, months and parts of the day that a prompt names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cachemind.core.guard_words import Reading
from cachemind.core.lexicon import terms, word_set

_MONTHS: Final = terms(
    "january february march april may june july august september october november "
    "december"
)
_DAYS: Final = terms("monday tuesday wednesday thursday friday saturday sunday")
_SHORT: Final = {
    **{month[:3]: month for month in _MONTHS if month not in {"march", "may"}},
    "sept": "september",
    **{day[:3]: day for day in _DAYS if day[:3] not in {"mon", "sat", "sun"}},
    "tues": "tuesday",
    "thurs": "thursday",
}
_DEICTIC: Final = terms(
    "today tonight tomorrow yesterday weekday weekdays weekend weekends noon midday "
    "midnight"
)
_DATES: Final = {
    **{name: name for name in (*_MONTHS, *_DAYS)},
    **{f"{day}s": day for day in _DAYS},
    **{name: name.removesuffix("s") for name in _DEICTIC},
    **_SHORT,
}
_ALSO_WORDS: Final = frozenset(("march", "may", *_SHORT))
_BEFORE_MONTHS: Final = word_set(
    "in on of by until till since from to next last this before after during"
)
PARTS: Final = word_set(
    "morning mornings afternoon afternoons evening evenings night nights spring summer "
    "winter autumn"
)


def dates_differ(one: Reading, other: Reading) -> bool:
    """Return whether two prompts name different days or months.

    Parts of a day and seasons differ only where both prompts name one.
    """
    if _dates(one) != _dates(other):
        return True
    mine, theirs = _parts(one), _parts(other)
    return bool(mine and theirs) and mine != theirs


def _dates(reading: Reading) -> list[str]:
    if reading.vocabulary.isdisjoint(_DATES):
        return []
    found: list[str] = []
    for at, token in enumerate(reading.tokens):
        word = token.lower().removesuffix("'s")
        if word not in _DATES or (
            word in _ALSO_WORDS and not _is_month(reading.tokens, at)
        ):
            continue
        found.append(_DATES[word])
    return sorted(found)


def _is_month(tokens: Sequence[str], at: int) -> bool:
    if at == 0:
        return False
    follows = tokens[at - 1].lower()
    return follows in _BEFORE_MONTHS or follows[0].isdigit() or tokens[at].istitle()


def _parts(reading: Reading) -> set[str]:
    return {word.removesuffix("s") for word in reading.vocabulary & PARTS}
