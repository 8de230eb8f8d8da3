"""A prompt as the guards read it: words, with contractions taken apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from cachemind.core.guard_numbers import Quantity, quantities
from cachemind.core.lexicon import word_set
from cachemind.core.number_words import NUMBER_WORDS, ROMAN

TOKEN: Final = re.compile(
    r"[$£€¥₹%°]"  # a unit of its own
    r"|\d+(?:[.,:/-]\d+)*[^\W\d_]*"  # 15  1,000  9:15  2024-01-05  10GB  1st  4o
    r"|[^\W\d_]\w*(?:'[^\W\d_]+)?"  # word  B12  don't  Ann's
)
_NAME: Final = re.compile(r"(?<=[\w,;)'&/-] )[^\W\d_a-z]\w*")
_DIGIT: Final = re.compile(r"\d")
_CURLY: Final = "\N{RIGHT SINGLE QUOTATION MARK}"
_IRREGULAR: Final = {
    "cannot": ("can", "not"),
    "can't": ("can", "not"),
    "won't": ("will", "not"),
    "shan't": ("shall", "not"),
    "ain't": ("is", "not"),
}
_AUXILIARIES: Final = word_set(
    "do does did is are was were has have had could should would must need"
)
_SHORT_IS: Final = word_set(
    "what who how where when why which it that this there here he she"
)
_ENDINGS: Final = {"re": "are", "m": "am", "ve": "have", "ll": "will", "d": "would"}

_NOT_ENDINGS: Final = ("nt", "ot")

FUNCTION_WORDS: Final = word_set(
    "a an the and or of in on at to for from by with about as into than then that this "
    "these those there here it its is are am was were be been being do does did done "
    "has have had can could will would shall should may might must i me my mine we us "
    "our you your he him his she her they them their one what which who whom whose how "
    "why when where if so please just also very really any some get got ok okay"
)
"""English words of closed classes: they carry no subject of their own."""


@dataclass(frozen=True)
class Reading:
    """One prompt, read once for all guards. `tokens` keep their capitals."""

    prompt: str
    tokens: tuple[str, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return the words with a capital that no sentence begins with."""
        return tuple(_NAME.findall(self.prompt))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Return the words in small letters, contractions taken apart."""
        words: list[str] = []
        for token in self.tokens:
            word = token.lower()
            if "'" in word or word[-2:] in _NOT_ENDINGS:
                words += _apart(word)
            else:
                words.append(word)
        return tuple(words)

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """Return the words, each once."""
        return frozenset(self.words)

    @cached_property
    def quantities(self) -> tuple[Quantity, ...]:
        """Return the numbers with their units, in order."""
        if (
            _DIGIT.search(self.prompt) is None
            and self.vocabulary.isdisjoint(NUMBER_WORDS)
            and ROMAN.keys().isdisjoint(self.tokens)
        ):
            return ()
        return quantities(self.tokens)


def read(prompt: str) -> Reading:
    """Return `prompt` as the guards read it."""
    prompt = prompt.replace(_CURLY, "'")
    return Reading(prompt, tuple(TOKEN.findall(prompt)))


def stem(word: str) -> str:
    """Return `word` without the commonest endings of English inflection."""
    for ending in ("ing", "ed", "es", "s", "ly"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word[-1] == "e" else word


def _apart(word: str) -> tuple[str, ...]:
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    head, apostrophe, tail = word.partition("'")
    if not apostrophe:
        # "dont" and "isnt", as people type them.
        if word.endswith("nt") and word[:-2] in _AUXILIARIES:
            return (word[:-2], "not")
        return ("can", "not") if word == "cant" else (word,)
    if tail == "t" and head.endswith("n"):
        return (head[:-1], "not")
    if tail == "s":
        return (head, "is") if head in _SHORT_IS else (head,)
    return (head, _ENDINGS[tail]) if tail in _ENDINGS else (head, tail)
