"""The numbers of a prompt and what they count."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from cachemind.core.guard_units import UNITS, UNITS_BEFORE
from cachemind.core.number_words import (
    FRACTIONS,
    NUMBER_WORDS,
    ORDINAL,
    ROMAN,
    SCALES,
    SMALL,
)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number as canonical text and its unit, "" where none is named.

    `soft` marks the word "one", which is as often a pronoun as a number.
    """

    value: str
    unit: str
    soft: bool = False


_THOUSANDS: Final = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_DIGITS: Final = re.compile(r"(\d+(?:[.,:/-]\d+)*)(.*)", re.DOTALL)
_LONGEST_SCALED_DIGITS: Final = 15
_PLAIN: Final = re.compile(r"\d+(?:\.\d+)?")


def quantities(tokens: Sequence[str]) -> tuple[Quantity, ...]:
    """Return the numbers in `tokens` in order: digits, words, ordinals, Roman.

    A word that mixes letters and digits (`B12`, `4o`) is a number of its own kind.
    """
    found: list[Quantity] = []
    end = 0
    for at, token in enumerate(tokens):
        if at < end or (token.isalpha() and not _may_be_number(token)):
            continue
        value, soft, unit, end = _number(tokens, at)
        if value:
            unit = unit or _unit_beside(tokens, at, end)
            found.append(Quantity(value, unit, soft))
    return tuple(found)


def _may_be_number(token: str) -> bool:
    return token.lower() in NUMBER_WORDS or token in ROMAN


def _unit_beside(tokens: Sequence[str], at: int, end: int) -> str:
    following = tokens[end].lower() if end < len(tokens) else ""
    if following in UNITS:
        return UNITS[following]
    return UNITS[tokens[at - 1]] if at and tokens[at - 1] in UNITS_BEFORE else ""


def numbers_differ(ones: Sequence[Quantity], others: Sequence[Quantity]) -> bool:
    """Return whether the numbers differ, or stand in an order that may matter.

    The word "one" may be missing on either side.
    """
    mine, theirs = _hard(ones, others), _hard(others, ones)
    if [each.value for each in mine] == [each.value for each in theirs]:
        return False
    # Other places are nothing where the units say which number is which.
    named = sorted((each.value, each.unit) for each in mine)
    same = named == sorted((each.value, each.unit) for each in theirs)
    return not same or len({unit for _, unit in named}) < len(named)


def units_differ(ones: Sequence[Quantity], others: Sequence[Quantity]) -> bool:
    """Return whether some number counts one thing here and another there."""
    mine, theirs = Counter(_named(ones)), Counter(_named(others))
    values = {value for value, _ in (mine - theirs)}
    return any(value in values for value, _ in (theirs - mine))


def _named(some: Sequence[Quantity]) -> Iterator[tuple[str, str]]:
    return ((each.value, each.unit) for each in some if each.unit)


def _hard(ones: Sequence[Quantity], others: Sequence[Quantity]) -> list[Quantity]:
    spare = Counter(each.value for each in others)
    spare.subtract(each.value for each in ones)
    missing = max(-spare["1"], 0)
    kept: list[Quantity] = []
    for each in ones:
        if each.soft and missing:
            missing -= 1
        else:
            kept.append(each)
    return kept


def _number(tokens: Sequence[str], at: int) -> tuple[str, bool, str, int]:
    """Return (value, soft, unit, end) of the number at `at`; value "" for none."""
    token = tokens[at]
    if token[0].isdigit():
        return _written(tokens, at)
    word = token.lower()
    if word in SMALL or (word in SCALES and word not in {"k", "bn"}):
        return _spelt(tokens, at)
    if word in ORDINAL:
        # "a second" and "per second" are time, "the second" is a place in a row.
        timely = word == "second" and at > 0 and tokens[at - 1].lower() in _PER
        return ("" if timely else str(ORDINAL[word])), False, "", at + 1
    if word in FRACTIONS:
        return FRACTIONS[word], False, "", at + 1
    if token in ROMAN:
        return ROMAN[token], False, "", at + 1
    mixed = any(map(str.isdigit, token))
    return (word if mixed else ""), False, "code" if mixed else "", at + 1


_PER: Final = frozenset(("a", "per", "each", "every", "one"))


def _written(tokens: Sequence[str], at: int) -> tuple[str, bool, str, int]:
    match = _DIGITS.fullmatch(tokens[at])
    if match is None:
        return tokens[at].lower(), False, "code", at + 1
    digits, suffix = match[1], match[2].lower()
    if _THOUSANDS.fullmatch(digits):
        digits = digits.replace(",", "")
    end = at + 1
    if suffix in SCALES:
        return _times(digits, SCALES[suffix]), False, "", end
    if suffix in UNITS:
        return digits, False, UNITS[suffix], end
    if suffix in {"", "st", "nd", "rd", "th", "s"}:
        scale = SCALES.get(tokens[end].lower()) if end < len(tokens) else None
        if suffix or scale is None:
            return digits, False, "", end
        return _times(digits, scale), False, "", end + 1
    return digits + suffix, False, "code", end


def _times(digits: str, scale: int) -> str:
    # Decimal would round past its 28 digits, and two numbers would become one.
    if not _PLAIN.fullmatch(digits) or len(digits) > _LONGEST_SCALED_DIGITS:
        return f"{digits}*{scale}"
    product = Decimal(digits) * scale
    whole = product.to_integral_value()
    return str(int(whole)) if product == whole else str(product.normalize())


def _spelt(tokens: Sequence[str], at: int) -> tuple[str, bool, str, int]:
    """Read "two hundred and fifty thousand"; "and" only between its parts."""
    total = part = 0
    end, last = at, at
    while end < len(tokens):
        word = tokens[end].lower()
        if word in SMALL and _fits(part, SMALL[word], started=end > at):
            part += SMALL[word]
        elif SCALES.get(word, 0) > part and word not in {"k", "bn"}:
            part = (part or 1) * SCALES[word]
            if SCALES[word] >= 1_000:
                total, part = total + part, 0
        elif not (word == "and" and tokens[end - 1].lower() in SCALES and end > at):
            break
        end += 1
        if word != "and":
            last = end
    soft = last == at + 1 and tokens[at].lower() == "one"
    return str(total + part), soft, "", last


def _fits(part: int, number: int, *, started: bool) -> bool:
    """Return whether a number word continues ("twenty five"), not begins another."""
    if not started or part % 100 == 0:
        return not started or part >= 100 or part == 0
    return part % 10 == 0 and part % 100 >= 20 and 0 < number < 10
