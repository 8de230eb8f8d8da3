"""Whether an operator has moved the materializer's group back.

The group's committed offset is a hint that only goes forward: set when a materializer
begins and ends, and by its live consumer in between. So what this host remembers of it
is never above what Kafka has, whatever was killed when; unless somebody else set it.
"""

from __future__ import annotations

from collections.abc import Mapping

from cachemind.types import Offset, Partition

Committed = Mapping[Partition, Offset | None]


def rewound(
    committed: Committed, remembered: Mapping[Partition, Offset]
) -> Mapping[Partition, Offset]:
    """Return the partitions whose group was moved back, and the offset it was given.

    Both sides are offsets to read next. A group that Kafka has forgotten (None) was
    not moved: it expires by itself where nobody commits for days.
    """
    return {
        partition: offset
        for partition, offset in committed.items()
        if offset is not None
        and partition in remembered
        and offset < remembered[partition]
    }
