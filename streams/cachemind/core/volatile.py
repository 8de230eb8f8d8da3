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
    r"(?:the|its|their|my|our|your|his|her|s) current (?=\w)|upcoming|trending",
    r"live (?:score|stream|update|result|coverage)s?",
    r"what time|what's the time|time is it|what day|what date|what year is it",
    r"(?:date|time) (?:now|in)|the (?:date|time)(?=\W*\Z)",
    r"weather|forecasts?|temperature (?:in|at|outside)",
    r"is it (?:rain|snow|sunn|cold|hot|warm)\w*",
    r"news|headlines?|traffic (?:in|on|near|to|from)|worth now",
    r"(?:stock|share|bitcoin|btc|gold|oil|gas|crypto)\w* (?:price|quote|rate)s?",
    r"prices? of|exchange rates?|interest rates?",
    r"the scores?|standings|who(?:'s| is| are) (?:winning|leading)",
    r"how old (?:is|are|am)|\w+ ago",
    r"(?:days|weeks|months|hours|long|time) (?:until|till|left|since)",
    r"is (?:\w+ ){1,4}(?:open|closed|down|up|available|in stock)(?=\W*\Z)",
    r"still (?:alive|open|available|working|running)",
)
_VOLATILE: Final = re.compile(rf"\b(?:{'|'.join(_PATTERNS)})\b", re.IGNORECASE)


def volatile(texts: Iterable[str]) -> bool:
    """Return whether any of a conversation's user turns asks about the present.

    All turns count: "and in Paris?" after a question about the weather is one too.
    """
    plain = (text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'") for text in texts)
    return any(_VOLATILE.search(text) is not None for text in plain)
