"""What the collector needs from outside, besides the log and the stores."""

from __future__ import annotations

from typing import Protocol

from cachemind.types import Partition


class CollectMetrics(Protocol):
    """Where the collector reports; called from one thread."""

    def evicted(self, partition: Partition, reason: str, entries: int) -> None:
        """An event that gives up so many entries is on the log."""
        ...

    def swept(self, partition: Partition, took_s: float, at_ns: int) -> None:
        """A whole sweep has ended. `at_ns` is since the Unix epoch (UTC)."""
        ...

    def failed(self, partition: Partition, reason: str) -> None:
        """A sweep was given up; `reason` is one of few words."""
        ...
