"""librdkafka's log lines without the repeats that an outage brings.

Each client says every failed connection attempt again, hundreds of lines a second
for one host whose Kafka is away.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Final

QUIET_S: Final = 30.0
_MOST: Final = 1_000
_VARIES: Final = re.compile(r"\d+")


class FewRepeats(logging.Filter):
    """Passes one line a kind every `QUIET_S` seconds; says how many it held back.

    Lines are of one kind where they differ in numbers only: client, time, port.
    """

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic_s = monotonic_s
        self._seen: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is to be written."""
        message = record.getMessage()
        kind, now = _VARIES.sub("", message), self._monotonic_s()
        until, held = self._seen.get(kind, (now, 0))
        if now < until:
            self._seen[kind] = until, held + 1
            return False
        if len(self._seen) >= _MOST:
            self._seen.clear()
        self._seen[kind] = now + QUIET_S, 0
        if held:
            record.msg, record.args = f"{message} (and {held} more like it)", ()
        return True
