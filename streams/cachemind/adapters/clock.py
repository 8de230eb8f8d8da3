"""Wall time: the machine's, or one that a test moves by hand."""

from __future__ import annotations

import time


class SystemClock:
    """The machine's clock."""

    def now_ns(self) -> int:
        """Return nanoseconds since the Unix epoch (UTC)."""
        return time.time_ns()


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now_ns: int) -> None:
        self._now_ns = now_ns

    def now_ns(self) -> int:
        """Return the nanoseconds since the Unix epoch (UTC) that were set last."""
        return self._now_ns

    def advance(self, by_ns: int) -> None:
        """Move on by `by_ns` nanoseconds; back where negative, as real clocks do."""
        self._now_ns += by_ns
