"""Which entries an `Invalidated` selects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, assert_never

from cachemind.core.identifiers import NS_PER_MS
from cachemind.core.state import Entry, EntryReader
from cachemind.events import Invalidated, SelectorKind
from cachemind.types import ExactKey, Sha256

_AGE_DIGITS: Final = 20
"""An age of more digits lies before the epoch whatever the event's time."""


def selected(
    entries: EntryReader, event: Invalidated, occurred_at_ns: int
) -> Sequence[ExactKey]:
    """Return the keys of the present entries that `event` names, in key order.

    A full scan of the namespace, except by key. Units: nanoseconds of event time.
    """
    if event.kind is SelectorKind.KEY:
        key = ExactKey(bytes.fromhex(event.value))
        return [] if entries.entry(key) is None else [key]
    matches = _matcher(event, occurred_at_ns)
    return [entry.exact_key for entry in entries.entries() if matches(entry)]


def _matcher(event: Invalidated, occurred_at_ns: int) -> Callable[[Entry], bool]:
    value = event.value
    match event.kind:
        case SelectorKind.KEY:
            key = bytes.fromhex(value)
            return lambda entry: entry.exact_key == key
        case SelectorKind.PREFIX:
            return lambda entry: (entry.prompt or "").startswith(value)
        case SelectorKind.TAG:
            return lambda entry: value in entry.tags
        case SelectorKind.MODEL:
            return lambda entry: entry.model == value
        case SelectorKind.CHUNK:
            chunk = Sha256(bytes.fromhex(value))
            return lambda entry: chunk in entry.source_chunks
        case SelectorKind.AGE:
            newest_ns = _newest_ns(value, occurred_at_ns)
            return lambda entry: entry.stored_at_ns <= newest_ns
        case SelectorKind.ALL:
            return lambda _entry: True
        case _:
            assert_never(event.kind)


def _newest_ns(age_ms: str, occurred_at_ns: int) -> int:
    """Return the latest storing time that is `age_ms` old; -1 for none."""
    digits = age_ms.lstrip("0") or "0"
    if len(digits) > _AGE_DIGITS:  # int() refuses thousands of digits
        return -1
    return occurred_at_ns - int(digits) * NS_PER_MS
