"""Tells a fold that is stuck from one that has nothing to do or no log to read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cachemind.types import Offset, Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    position: Offset
    since_s: float
    lagging: bool


class Watchdog:
    """Remembers when each partition last got on.

    `patience_s` is how long a partition may lag without any progress while the log
    answers. All times are seconds on one monotonic clock.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._seen: dict[Partition, _Seen] = {}

    def observe(
        self, now_s: float, partition: Partition, position: Offset, end: Offset
    ) -> bool:
        """Return whether `partition` is stuck: behind `end` and still for too long."""
        seen = self._seen.get(partition)
        lagging = position < end
        if seen is None or not (lagging and seen.lagging) or seen.position != position:
            self._seen[partition] = _Seen(
                position=position, since_s=now_s, lagging=lagging
            )
            return False
        return now_s - seen.since_s >= self._patience_s

    def still(self, partition: Partition, position: Offset) -> bool:
        """Return whether `partition` was at `position` the last time too."""
        seen = self._seen.get(partition)
        return seen is not None and seen.position == position

    def forget(self, partition: Partition) -> None:
        """Know nothing of `partition`: it stands for a reason that is known."""
        self._seen.pop(partition, None)

    def away(self, now_s: float) -> None:
        """Note that the log does not answer: nobody can be blamed for standing."""
        for partition, seen in self._seen.items():
            self._seen[partition] = replace(seen, since_s=now_s)
