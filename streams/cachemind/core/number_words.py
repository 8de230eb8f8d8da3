"""Numbers as English spells them."""

from __future__ import annotations

from typing import Final

from cachemind.core.lexicon import terms

SMALL: Final = {
    word: number
    for number, word in enumerate(
        terms(
            "zero one two three four five six seven eight nine ten eleven twelve "
            "thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
        )
    )
} | {
    word: ten * 10
    for ten, word in enumerate(
        terms("twenty thirty forty fifty sixty seventy eighty ninety"), start=2
    )
}
ORDINAL: Final = {
    word: number
    for number, word in enumerate(
        terms(
            "first second third fourth fifth sixth seventh eighth ninth tenth eleventh "
            "twelfth"
        ),
        start=1,
    )
}
SCALES: Final = {
    "dozen": 12,
    "hundred": 100,
    "thousand": 1_000,
    "k": 1_000,
    "million": 1_000_000,
    "billion": 1_000_000_000,
    "bn": 1_000_000_000,
    "trillion": 1_000_000_000_000,
}
FRACTIONS: Final = {"half": "0.5", "twice": "x2", "double": "x2", "triple": "x3"}
NUMBER_WORDS: Final = frozenset((*SMALL, *ORDINAL, *SCALES, *FRACTIONS))
ROMAN: Final = {
    numeral: str(number)
    for number, numeral in enumerate(
        terms(
            "I II III IV V VI VII VIII IX X XI XII XIII XIV XV XVI XVII XVIII XIX XX"
        ),
        start=1,
    )
    if len(numeral) > 1
}
