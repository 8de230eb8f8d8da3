"""From a stream of tokens to a stream of text: UTF-8 and stop strings. Pure."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator

from cachemind_services.demo.chat_sampling import Delta, Token


def deltas(
    tokens: Iterable[Token], stop: tuple[str, ...], limit: int
) -> Iterator[Delta]:
    """Yield the answer's text as it becomes certain, the finish reason last.

    Text that could be the beginning of a stop string is held back, and so are
    bytes of an unfinished character. Ends after `limit` tokens with `length`, at a
    stop string or where `tokens` ends with `stop`.
    """
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    held, waiting, count = "", [], 0
    for token in tokens:
        count += 1
        waiting.append(token)
        held += decode(token.chosen.text)
        cut = _first_stop(held, stop)
        if cut is not None:
            yield Delta(held[:cut], tuple(waiting), "stop")
            return
        safe = len(held) - _maybe_stop(held, stop)
        if count == limit:
            break
        if safe:
            yield Delta(held[:safe], tuple(waiting))
            held, waiting = held[safe:], []
    finish = "length" if count == limit else "stop"
    yield Delta(held + decode(b"", final=True), tuple(waiting), finish)


def _first_stop(text: str, stop: tuple[str, ...]) -> int | None:
    """Return where the stop string begins that is the first to be complete.

    By their ends, so that it does not matter how the text falls into tokens.
    """
    found = [(text.find(mark) + len(mark), mark) for mark in stop if mark in text]
    return min((end, end - len(mark)) for end, mark in found)[1] if found else None


def _maybe_stop(text: str, stop: tuple[str, ...]) -> int:
    """Return the length of the longest end of `text` that begins a stop string."""
    longest = max((len(mark) for mark in stop), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        if any(mark.startswith(text[-length:]) for mark in stop):
            return length
    return 0
