"""A sole writer on a topic in memory, for unit tests and simulation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cachemind.adapters.memory_log import MemoryLog
from cachemind.errors import CacheError, LogTakenOver, LogUnavailable
from cachemind.ports import Headers
from cachemind.types import Lsn, Partition


class MemoryTurns:
    """Whose turn it is to write to a partition: the last one's who asked."""

    def __init__(self) -> None:
        self.now = 0


class MemorySoleWriter:
    """A `SoleWriter` on a `MemoryLog`. Writers of one partition share `turns`.

    `fails_after_commit` makes the next append look as if it had failed.
    """

    def __init__(
        self, log: MemoryLog, partition: Partition, turns: MemoryTurns
    ) -> None:
        self._log = log
        self._partition = partition
        self._turns = turns
        self._turn: int | None = None
        self.fails_after_commit = False

    def take_over(self) -> None:
        """End every other writer."""
        self._log.bounds(self._partition)
        self._turns.now += 1
        self._turn = self._turns.now

    def append_all(
        self,
        records: Sequence[tuple[bytes, bytes, Headers]],
        before_commit: Callable[[], None],
        /,
    ) -> Sequence[Lsn]:
        """Return where the records are; they are followed by a gap, as a mark is."""
        if self._turn is None:
            raise LogUnavailable("append: this writer has not taken over")
        try:
            before_commit()
            if self._turn != self._turns.now:
                raise LogTakenOver("append: another one has begun since")
            lsns = self._log.append_at(self._partition, records)
            if self.fails_after_commit:
                self.fails_after_commit = False
                raise LogUnavailable("commit: whether it is done is not known")
        except CacheError:
            self._turn = None
            raise
        self._log.leave_gap(self._partition)
        return lsns

    def close(self) -> None:
        """Write no more."""
        self._turn = None
