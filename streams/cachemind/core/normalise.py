"""The spelling under which two prompts count as the same words."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from cachemind.core.lexicon import word_set

LONGEST_FOLDED_CHARS: Final = 2_000
"""Past this only line ends, outer white space and Unicode form are normalised."""

# Marks of code, markup, tables or quotations, where white space or a capital may
# carry the meaning. A single quote counts only where it opens a word.
_LITERAL: Final = re.compile(
    r"""[\n\t`"“”„«»<>{}\[\]=;\\|#*_$]|(?:^|[\s(])['‘]|\S/\S|://"""  # noqa: RUF001
)
# A prompt about its own characters is not prose to be respelt.
_ABOUT_TEXT: Final = re.compile(
    r"\b(?:capital|upper-?\s?case|lower-?\s?case|case|letter|character|space|"
    r"white-?\s?space|verbatim|exact|repeat|spell|typo|grammar|proofread|punctuat|"
    r"sentence|word|phrase|text|quote|rewrite|translate|edit|correct|format)",
    re.IGNORECASE,
)
_SPACES: Final = re.compile(r"[ \u00a0\u2000-\u200a\u202f\u205f\u3000]+")
# English function words of closed classes, without those that are also names,
# nouns or labels when capitalised (Will, May, Might, Can, Do, A, An, I, It, Who).
_FUNCTION_WORDS: Final = word_set(
    "What How Why When Where Which Whose Whom Is Are Was Were Does Did Has Have Had "
    "Could Should Would The This That These Those There And But If Of For From With "
    "In On At To By"
)
_SENTENCE_START: Final = re.compile(r"(?:\A|[?!] )([A-Z][a-z]{1,5})(?=[ ,?]|['’]s )")  # noqa: RUF001


def normalise(text: str) -> str:
    """Return `text` in the spelling that the exact key is made of.

    Unicode NFC, line feeds for CR LF, no outer white space. In one line of plain
    English prose also: one space for a run of spaces, and a small letter for the
    capital of a function word that begins a sentence. Idempotent.
    Source: Unicode Standard Annex 15 for NFC.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    line = text.strip()
    if "\n" in line:
        return _without_outer_lines(text)
    if len(line) > LONGEST_FOLDED_CHARS or not _is_prose(line):
        return line
    return _SENTENCE_START.sub(_fold_initial, _SPACES.sub(" ", line))


def _without_outer_lines(text: str) -> str:
    # The first line's indentation stays: it is code's relative to the others.
    text = text.rstrip()
    while True:
        line, feed, rest = text.partition("\n")
        if not feed or line.strip():
            return text
        text = rest


def _is_prose(line: str) -> bool:
    return _LITERAL.search(line) is None and _ABOUT_TEXT.search(line) is None


def _fold_initial(match: re.Match[str]) -> str:
    if match[1] not in _FUNCTION_WORDS:
        return match[0]
    start = match.start(1) - match.start()
    return match[0][:start] + match[0][start:].lower()
