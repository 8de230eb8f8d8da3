"""Does the store still move while there is something to fold?"""

from __future__ import annotations

import time
from collections.abc import Callable

from cachemind.types import Offset


class Standstill:
    """Knows since when a store has not moved although it is behind."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._since: float | None = None
        self._at = Offset(-1)

    def observe(self, applied: Offset, lag: int) -> None:
        """Take in how far the store is, and how many records behind."""
        if not lag:
            self._since = None
        elif self._since is None or applied != self._at:
            self._since = self._now()
        self._at = applied

    def seconds(self) -> float:
        """Return how long it stands still; 0 while it moves or has nothing to do."""
        return 0.0 if self._since is None else self._now() - self._since
