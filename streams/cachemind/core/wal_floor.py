"""How far the WAL may be deleted, partition by partition.

A state is kept as a checkpoint and the records after it. So what the oldest kept one
needs to be brought to any later moment must stay, and all before may go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from cachemind.types import Offset, Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A checkpoint of one partition that is kept: `offset` is its last record's.

    `shipped`: it is a snapshot's, and outlives this host. `holder` is the host that
    keeps it, empty for this one.
    """

    offset: Offset
    shipped: bool
    holder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """What is advised for one partition.

    `first` and `end` are the log's bounds; records in [first, floor) may be deleted.
    `reason` says why the floor is where it is.
    """

    partition: Partition
    first: Offset
    end: Offset
    floor: Offset
    reason: str

    @property
    def deletable(self) -> int:
        """Return how many offsets may be given up."""
        return max(0, self.floor - self.first)


def floor_of(
    partition: Partition,
    bounds: tuple[Offset, Offset],
    kept: Iterable[Kept],
    *,
    must_ship: bool,
    others: Collection[str] = (),
) -> Floor:
    """Return how far `partition` may be deleted.

    `others` are the other hosts that live: the log is all that one has from which no
    checkpoint of it is kept.

    With `must_ship` nothing may where no snapshot has been shipped: what this host
    has dies with it. A checkpoint in front of the log's first record is no base any
    more and binds nothing, nor does one that is not of this log's extent.
    """
    first, end = bounds
    usable = [one for one in kept if first <= one.offset + 1 <= end]
    if not usable:
        return _nothing(
            partition, first, end, "no snapshot is retained, nor a checkpoint"
        )
    if must_ship and not any(one.shipped for one in usable):
        return _nothing(partition, first, end, "no retained snapshot is shipped yet")
    for name in sorted(set(others) - {one.holder for one in usable}):
        return _nothing(partition, first, end, f"host {name} keeps no checkpoint yet")
    oldest = min(usable, key=lambda one: (one.offset, not one.shipped))
    kind = "snapshot" if oldest.shipped else "checkpoint"
    return Floor(
        partition=partition,
        first=first,
        end=end,
        floor=Offset(oldest.offset + 1),
        reason=f"the oldest retained {kind} is at {partition}@{oldest.offset}"
        + (f", held by host {oldest.holder}" if oldest.holder else ""),
    )


def refusal(floor: Floor, before: Offset) -> str | None:
    """Return why the records below `before` may not be deleted, None if they may."""
    if before <= floor.floor:
        return None
    return (
        f"partition {floor.partition}: records from {floor.floor} on are needed, since "
        f"{floor.reason}; asked to delete below {before}"
    )


def _nothing(partition: Partition, first: Offset, end: Offset, reason: str) -> Floor:
    return Floor(partition=partition, first=first, end=end, floor=first, reason=reason)
