"""Time, handed in."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Wall time. Never trusted for order."""

    def now_ns(self) -> int:
        """Return nanoseconds since the Unix epoch (UTC)."""
        ...
