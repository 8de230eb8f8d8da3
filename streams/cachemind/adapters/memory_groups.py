"""A consumer group's committed offsets in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cachemind.errors import LogRejected
from cachemind.types import Offset, Partition


class MemoryGroupOffsets:
    """The `GroupOffsets` of one group; `alive` says whether it has a live member."""

    def __init__(self) -> None:
        self._offsets: dict[Partition, Offset] = {}
        self.alive = False

    def committed(
        self, partitions: Sequence[Partition]
    ) -> Mapping[Partition, Offset | None]:
        """Return the next offset that the group would read, None where none is set."""
        return {partition: self._offsets.get(partition) for partition in partitions}

    def commit(self, offsets: Mapping[Partition, Offset]) -> None:
        """Set the next offset to read of each partition.

        Raises: `LogRejected` where the group is alive.
        """
        if self.alive:
            raise LogRejected("the group has a live member, which alone may commit")
        self._offsets.update(offsets)

    def close(self) -> None:
        """Leave the cluster; nothing is held."""
