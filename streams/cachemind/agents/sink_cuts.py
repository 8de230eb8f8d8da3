"""Finds the cuts that cover a file's receipts, on the topic of cuts itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cachemind.core.audit_files import Span
from cachemind.core.audit_manifest import CoveringCuts
from cachemind.ports import LogReader
from cachemind.receipts import Cut
from cachemind.types import Offset, Partition

SCANNED: Final = 4096
"""Offsets that are read in one go; a longer range is halved first."""

_ONLY: Final = Partition(0)


@dataclass(frozen=True, slots=True)
class _Found:
    offset: Offset
    cut: Cut

    def covers(self, partition: Partition, seq: int) -> bool:
        heads = self.cut.heads
        return partition < len(heads) and heads[partition].size > seq


class CutSearch:
    """Looks for cuts by halves: what one covers, every later one covers."""

    def __init__(
        self,
        reader: LogReader,
        cut_of: Callable[[bytes | None], Cut | None],
        scanned: int = SCANNED,
    ) -> None:
        self._reader = reader
        self._cut_of = cut_of
        self._scanned = scanned

    def covering(
        self, partition: Partition, seqs: Span, start: Offset
    ) -> CoveringCuts | None:
        """Return the first cuts that cover both ends of `seqs`, None where none does.

        No cut below `start` does. Raises: `LogUnavailable`.
        """
        first = self._first(partition, seqs.first, start)
        if first is None:
            return None
        last = self._first(partition, seqs.last, first.offset)
        if last is None:
            return None
        return CoveringCuts(
            first=first.cut.index, last=last.cut.index, offset=last.offset
        )

    def _first(self, partition: Partition, seq: int, start: Offset) -> _Found | None:
        begin, end = self._reader.bounds(_ONLY)
        low, high = max(start, begin), end
        later: _Found | None = None
        while high - low > self._scanned:
            middle = Offset((low + high) // 2)
            found = self._next(middle, high, lambda _: True)
            if found is not None and not found.covers(partition, seq):
                low = Offset(found.offset + 1)
            else:
                later, high = found or later, middle
        return self._next(low, high, lambda one: one.covers(partition, seq)) or later

    def _next(
        self, start: Offset, end: Offset, wanted: Callable[[_Found], bool]
    ) -> _Found | None:
        for batch in self._reader.read(_ONLY, start, end):
            for record in batch:
                cut = self._cut_of(record.value)
                if cut is None:
                    continue
                found = _Found(record.lsn.offset, cut)
                if wanted(found):
                    return found
        return None
