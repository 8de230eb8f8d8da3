"""How far the fold is, for readiness and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cachemind.types import Offset, Partition

CAUGHT_UP_LAG: Final = 1000
"""A partition that has once reached the end counts as caught up to this lag, in
records: under load the end is always a few records away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One partition: `end` is the log's, None until it was first asked."""

    applied: Offset
    position: Offset
    end: Offset | None
    caught_up: bool

    @property
    def lag(self) -> int | None:
        """Return how many offsets are not settled yet, None where unknown."""
        return None if self.end is None else max(0, self.end - self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializerStatus:
    """The whole fold. `log_answers` is whether the last question got an answer."""

    log_answers: bool
    partitions: Mapping[Partition, PartitionStatus]

    @property
    def ready(self) -> bool:
        """Return whether readers see a state that is close to the log's end."""
        return self.log_answers and all(p.caught_up for p in self.partitions.values())


def caught_up(before: bool, position: Offset, end: Offset) -> bool:
    """Return whether a partition is caught up, given whether it was `before`."""
    return position >= end or (before and end - position <= CAUGHT_UP_LAG)
