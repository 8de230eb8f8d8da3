"""What the consumer group is told of the fold: a hint, never the truth."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from cachemind.agents.folding import Folder
from cachemind.errors import LogError, StoreError
from cachemind.ports import GroupOffsets, OffsetMemory
from cachemind.types import Lsn, Offset, Partition

log = logging.getLogger(__name__)


class GroupHint:
    """Sets the group's offsets to where the stores are, while nobody is in it.

    With a `memory` it keeps what it has set, so that the next start can tell whether
    somebody else moved the group back (see `core.rewind`).
    """

    def __init__(
        self,
        offsets: GroupOffsets,
        folders: Mapping[Partition, Folder],
        memory: OffsetMemory | None = None,
    ) -> None:
        self._offsets = offsets
        self._folders = folders
        self._memory = memory
        self._opened_at = {p: folder.applied for p, folder in folders.items()}

    def begin(self) -> None:
        """Say where the group is behind what its stores held at first; set its offsets.

        That happens after a kill. The fold drops what it is given again.
        """
        try:
            for partition, offset in self._behind().items():
                log.warning(
                    "the group is at %s, the store at %s: the store counts",
                    Lsn(partition, offset),
                    Lsn(partition, self._opened_at[partition]),
                )
        except LogError as error:
            log.warning("the group's offsets are not known: %s", error)
        self.set()

    def set(self) -> None:
        """Set the group's offsets; where that cannot be, leave them as they are."""
        offsets = {p: Offset(f.applied + 1) for p, f in self._folders.items()}
        try:
            self._offsets.commit(offsets)
            if self._memory is not None:
                self._memory.save(offsets)
        except StoreError as error:
            log.warning("the group's offsets are not kept here: %s", error)
        except LogError as error:
            # After a kill the old member is in the group until its session ends.
            log.info("the group's offsets were left as they are: %s", error)

    def _behind(self) -> Mapping[Partition, Offset]:
        committed = self._offsets.committed(tuple(self._folders))
        return {
            partition: offset
            for partition, offset in committed.items()
            if offset is not None and offset <= self._opened_at[partition]
        }
