"""Who does what to whom, and from where to where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cachemind.core.guard_words import FUNCTION_WORDS, Reading, stem
from cachemind.core.lexicon import word_set

_CUES: Final = word_set("to into from than by over against before after for with of")
"""Words whose two sides are not alike; `and` and `or` are not among them."""

_SYMMETRIC: Final = ("and", "or")
_REACH: Final = 2
"""Content words on each side of a cue that are its arguments."""


def direction_differs(one: Reading, other: Reading) -> bool:
    """Return whether the prompts have the same parts in other roles.

    1. The very same words in another order, unless only a part was moved from one
       end to the other ("in Python, how do I ..." and "how do I ... in Python"), only
       function words moved ("why is it", "why it is") or two sides of "and" or "or"
       changed places.
    2. Two words that have changed sides of "to", "than", "by" and their like.
    """
    if one.words == other.words:
        return False
    if sorted(one.words) == sorted(other.words):
        return not _same_roles(one.words, other.words)
    if _CUES.isdisjoint(one.vocabulary & other.vocabulary):
        return False
    mine, theirs = set(_relations(one)), set(_relations(other))
    # A relation that holds both ways in a prompt ("there and back") has no direction.
    return any((y, cue, x) in theirs - mine for x, cue, y in mine - theirs)


def _same_roles(ones: Sequence[str], others: Sequence[str]) -> bool:
    if _content(ones) == _content(others):
        return True
    doubled = [*ones, *ones]
    width = len(ones)
    if any(doubled[at : at + width] == list(others) for at in range(width)):
        return True
    mine, theirs = _changed(ones, others)
    return any(
        [*mine[at + 1 :], mine[at], *mine[:at]] == theirs
        for at, word in enumerate(mine)
        if word in _SYMMETRIC
    )


def _changed(ones: Sequence[str], others: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return both sequences without the beginning and the end that they share."""
    first, last = 0, len(ones)
    while ones[first] == others[first]:
        first += 1
    while ones[last - 1] == others[last - 1]:
        last -= 1
    return list(ones[first:last]), list(others[first:last])


def _content(words: Sequence[str]) -> list[str]:
    return [word for word in words if word not in FUNCTION_WORDS]


def _relations(reading: Reading) -> Iterator[tuple[str, str, str]]:
    content: list[str] = []
    cues: list[tuple[str, int]] = []
    for word in reading.words:
        if word in _CUES:
            cues.append((word, len(content)))
        elif word not in FUNCTION_WORDS:
            content.append(stem(word))
    for cue, place in cues:
        left = content[max(place - _REACH, 0) : place]
        right = content[place : place + _REACH]
        yield from ((x, cue, y) for x in left for y in right if x != y)
