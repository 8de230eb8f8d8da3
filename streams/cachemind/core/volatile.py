"""Prompts whose right answer time alone changes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

# Deixis to the moment of asking, and subjects that are only ever asked about as
# they stand. English; a missed one lives no longer than its ttl.
_PATTERNS: Final = (
    r"today|tonight|tomorrow|yesterday|nowadays|currently|presently",
    r"right now|just now|(?<=\w )now|(?<=, )now(?=\W*\Z)|at (?:the|this) moment",
    r"(?:this|last|next|past|coming) (?:second|minute|hour|morning|afternoon|evening"
    r"|night|day|week|weekend|month|quarter|season|year)s?",
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)day(?=\W*\Z)",
    r"latest|newest|most recent(?:ly)?|recent|recently|up[- ]to[- ]date|so far|as of",
    r"current|ongoing|upcoming|live|breaking|trending",
    r"what time|what's the time|time is it|what day|what date|what year is it"
    r"|(?:date|time) (?:now|in)\b|the (?:date|time)(?=\W*\Z)",
    r"weather|forecasts?|temperature (?:in|at|outside)|is it (?:rain|snow|sunn|cold|hot"
    r"|warm)\w*",
    r"news|headlines?|traffic|(?:stock|share|bitcoin|btc|gold|oil|gas|crypto)\w* "
    r"(?:price|quote|rate)s?|prices? of|exchange rates?|interest rates?|worth now",
    r"scores?|standings|who(?:'s| is| are) (?:winning|leading)|how old (?:is|are|am)",
    r"(?:days|weeks|months|hours|long|time) (?:until|till|left|since)|(?:\w+) ago",
    r"is (?:\w+ ){1,4}(?:open|closed|down|up|still alive|available|in stock)(?=\W*\Z)",
    r"still (?:alive|open|available|working|running)",
)
_VOLATILE: Final = re.compile(rf"\b(?:{'|'.join(_PATTERNS)})\b", re.IGNORECASE)


def volatile(texts: Iterable[str]) -> bool:
    """Return whether any of a conversation's user turns asks about the present.

    All turns count: "and in Paris?" after a question about the weather is one too.
    """
    return any(_VOLATILE.search(text) is not None for text in texts)
