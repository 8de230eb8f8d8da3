"""Counts of hits, kept in plain numbers and given to Prometheus a few times a second.

Its values are in files that worker processes share; writing three of them for each
hit was a fifteenth of what a hit costs.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from prometheus_client import Counter, Histogram

SETTLE_S: Final = 0.1
"""How far the exposition may be behind."""


class Tally:
    """Counts of one counter and one histogram; use it on one event loop only.

    `bounds` are the histogram's own buckets, in its unit.
    """

    def __init__(
        self, counter: Counter, histogram: Histogram, bounds: Sequence[float]
    ) -> None:
        self._counter = counter
        self._histogram = histogram
        self._bounds = tuple(bounds)
        self._in_bucket = [0] * (len(self._bounds) + 1)
        self._sum = 0.0
        self._count = 0

    def count(self, value: float) -> None:
        """Count one more, and `value` in the histogram."""
        if not self._count:
            asyncio.get_running_loop().call_later(SETTLE_S, self.settle)
        self._count += 1
        self._sum += value
        self._in_bucket[bisect_left(self._bounds, value)] += 1

    def settle(self) -> None:
        """Give Prometheus what has been counted since the last time."""
        if not self._count:
            return
        self._counter.inc(self._count)
        # `observe` takes one value at a time; these are what it adds to.
        self._histogram._sum.inc(self._sum)
        for bucket, number in zip(
            self._histogram._buckets, self._in_bucket, strict=True
        ):
            if number:
                bucket.inc(number)
        self._in_bucket = [0] * len(self._in_bucket)
        self._sum = 0.0
        self._count = 0
