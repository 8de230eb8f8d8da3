"""What a prompt is about and what kind of answer it wants."""

from __future__ import annotations

from typing import Final

from cachemind.core.guard_words import FUNCTION_WORDS, Reading, stem
from cachemind.core.lexicon import word_set

_ASKING: Final = word_set("why when where who whose whom how")
_PERSON: Final = {"whose": "who", "whom": "who"}


def names_differ(one: Reading, other: Reading) -> bool:
    """Return whether one prompt names something that the other never mentions.

    A name is a word with a capital inside of a sentence. Where the other prompt has
    the same word in small letters, it counts as the same name.
    """
    return _unmentioned(one, other) or _unmentioned(other, one)


def questions_differ(one: Reading, other: Reading) -> bool:
    """Return whether the prompts ask for different things: why, when, where, who, how.

    "What" and "which" can stand for any of them, so they differ from none.
    """
    mine, theirs = _asked(one), _asked(other)
    return bool(mine and theirs) and mine.isdisjoint(theirs)


def _unmentioned(one: Reading, other: Reading) -> bool:
    unshared = {name.lower() for name in one.names} - other.vocabulary - FUNCTION_WORDS
    if not unshared:
        return False
    return not {stem(name) for name in unshared} <= set(map(stem, other.vocabulary))


def _asked(reading: Reading) -> set[str]:
    return {_PERSON.get(word, word) for word in reading.vocabulary & _ASKING}
