"""A log without an end, the same in every process: the event at any offset."""

from __future__ import annotations

from random import Random

from cachemind.core.working_set import WorkingSet
from cachemind.events import (
    Body,
    Envelope,
    Evicted,
    Invalidated,
    Pinned,
    SelectorKind,
)
from cachemind.types import Namespace
from tests.fold_cases import envelope, folded, key, lsn, read, reads, stored

NAMESPACES = (Namespace("a"), Namespace("ab"), Namespace("b"))
_KEYS = 40


def event_at(offset: int) -> Envelope:
    """Mostly stores and reads of a few keys, at times one of the others."""
    choice = Random(offset)
    word = str(choice.randrange(_KEYS))
    return envelope(
        _body(choice, word, offset),
        str(offset),
        namespace=choice.choice(NAMESPACES),
        at_ns=offset,
    )


def _body(choice: Random, word: str, offset: int) -> Body:
    kind = choice.random()
    if kind < 0.6:
        at = str(choice.randrange(5))
        return stored(word, at_context=at, response=f"{offset} " * 50, tags=(at,))
    if kind < 0.85:
        return reads(read(word, offset), read(str(choice.randrange(_KEYS)), offset))
    if kind < 0.92:
        return Evicted(keys=(key(word),), reason="lru-k")
    if kind < 0.97:
        return Pinned(exact_key=key(word), pinned=choice.random() < 0.5)
    return Invalidated(kind=SelectorKind.TAG, value=word[0], reason="r")


def folded_up_to(offset: int) -> WorkingSet:
    """Fold the log's events 0 .. `offset`; -1 for none."""
    work = folded([])
    for at in range(offset + 1):
        work.apply(event_at(at), lsn(at))
    return work
