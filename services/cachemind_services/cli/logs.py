"""How this program's messages look, and how often the same one is said."""

from __future__ import annotations

import logging
import re
import sys
import time
from asyncio import CancelledError
from collections.abc import Callable
from typing import Final

REPEAT_AFTER_S: Final = 30.0
_MOST_KINDS: Final = 1_000
_CHANGING: Final = re.compile(r"[0-9a-f]{8,}|\d+")
_QUIET: Final = ("httpx", "httpx2", "openai", "uvicorn")


class Repeats(logging.Filter):
    """Lets a message through once in `REPEAT_AFTER_S`; numbers do not make it new.

    While Kafka is away librdkafka alone says the same thirty times a second. The
    next one through tells how many were held back.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._last: dict[str, float] = {}
        self._held: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether `record` is to be shown."""
        kind = f"{record.name} {_CHANGING.sub('#', record.getMessage())[:80]}"
        now = self._now()
        if now - self._last.get(kind, -REPEAT_AFTER_S) < REPEAT_AFTER_S:
            self._held[kind] = self._held.get(kind, 0) + 1
            return False
        if len(self._last) >= _MOST_KINDS:
            self._last.clear()
            self._held.clear()
        self._last[kind] = now
        held = self._held.pop(kind, 0)
        if held:
            record.msg = f"{record.getMessage()} (and {held} like it)"
            record.args = ()
        return True


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
