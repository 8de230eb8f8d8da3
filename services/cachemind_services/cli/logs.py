"""How this program's messages look, and how often the same one is said."""

from __future__ import annotations

import logging
import re
import sys
import time
from asyncio import CancelledError
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

REPEAT_AFTER_S: Final = 30.0
MOST_ALIKE: Final = 100
"""Of our own lines that differ in numbers alone, in `REPEAT_AFTER_S`."""

_MOST_KINDS: Final = 1_000
_CHANGING: Final = re.compile(r"[0-9a-f]{8,}|\d+")
_OURS: Final = "cachemind."
_LIBRDKAFKA: Final = "cachemind.kafka"
_QUIET: Final = ("httpx", "httpx2", "openai", "uvicorn")


@dataclass(slots=True)
class _Kind:
    """What was said of one kind since then, and how often it was held back."""

    since_s: float
    said: set[str] = field(default_factory=set)
    held: int = 0


class Repeats(logging.Filter):
    """Lets a message through once in `REPEAT_AFTER_S`.

    In what libraries say numbers make no new message: while Kafka is away librdkafka
    alone says the same thirty times a second. In ours they do, for they name the
    partition or the record; only a flood of them is cut off. The next one through
    tells how many were held back.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._kinds: dict[str, _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether `record` is to be shown."""
        text = record.getMessage()
        kind = self._kind(f"{record.name} {_CHANGING.sub('#', text)[:80]}")
        most = MOST_ALIKE if _tells_by_numbers(record.name) else 1
        if text in kind.said or len(kind.said) >= most:
            kind.held += 1
            return False
        kind.said.add(text)
        if kind.held:
            record.msg, record.args = f"{text} (and {kind.held} like it)", ()
            kind.held = 0
        return True

    def _kind(self, name: str) -> _Kind:
        now = self._now()
        found = self._kinds.get(name)
        if found is None:
            if len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
            found = self._kinds[name] = _Kind(now)
        elif now - found.since_s >= REPEAT_AFTER_S:
            found.since_s = now
            found.said.clear()
        return found


def _tells_by_numbers(logger: str) -> bool:
    return logger.startswith(_OURS) and logger != _LIBRDKAFKA


def configure() -> None:
    """Send messages to standard error, none of them in bursts."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(Repeats())
    logging.basicConfig(
        level=logging.INFO,
        handlers=[handler],
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").addFilter(not_cancelled)


def not_cancelled(record: logging.LogRecord) -> bool:
    """Return False for a request that the drain has cut: no error, and no news."""
    return not (record.exc_info and isinstance(record.exc_info[1], CancelledError))
