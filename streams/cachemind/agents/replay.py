"""Catching up in bulk: everything committed on the log, by position.

The live consumer may start late, jump or stop; a span of the log read here is what
the fold trusts. A replay ends where its position reaches the end that the log named
when it began, so control records never hang it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cachemind.agents.folding import Folder
from cachemind.errors import FoldStopped, OffsetOutOfRange, StoreMismatch
from cachemind.ports import LogReader
from cachemind.types import Lsn, Offset

NEAR_END_RECORDS: Final = 1000
"""A replay hands over to the live consumer once fewer are left."""

Progress = Callable[[Folder, Offset], None]
"""Called after each commit with the folder and the end that it is heading for."""


def never() -> bool:
    """Return that nobody wants to stop."""
    return False


def fill(
    folder: Folder,
    reader: LogReader,
    end: Offset,
    *,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] = never,
) -> bool:
    """Fold every committed record below `end`; return False if told to stop before.

    Raises: `FoldStopped`, `LogUnavailable`, `StoreError`.
    """
    if folder.position >= end:
        return True
    try:
        for batch in reader.read(folder.partition, folder.position, end):
            folder.fold(batch)
            if progress is not None:
                progress(folder, end)
            if should_stop():
                return False
    except OffsetOutOfRange as error:
        here = Lsn(folder.partition, folder.position)
        raise FoldStopped(str(here), str(error)) from error
    folder.settle(folder.position, end)
    return True


def catch_up(
    folder: Folder,
    reader: LogReader,
    *,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] = never,
    near_end_records: int = NEAR_END_RECORDS,
) -> Offset:
    """Fold until fewer than `near_end_records` are left; return the log's end.

    Raises: `FoldStopped`, also where retention has deleted what was never folded;
    `StoreMismatch` where the store is ahead of the log; `LogUnavailable`,
    `StoreError`.
    """
    end = _checked_end(folder, reader)
    while folder.position < end:
        if not fill(folder, reader, end, progress=progress, should_stop=should_stop):
            return end
        end = _checked_end(folder, reader)
        if end - folder.position < near_end_records:
            return end
    return end


def _checked_end(folder: Folder, reader: LogReader) -> Offset:
    first, end = reader.bounds(folder.partition)
    here = Lsn(folder.partition, folder.position)
    if folder.position < first:
        raise FoldStopped(
            str(here), f"the log begins at {first}: what came before was deleted"
        )
    if folder.applied >= end:
        raise StoreMismatch(
            f"the store is at {Lsn(folder.partition, folder.applied)} but the log "
            f"ends at {end}: it is another log, or it was truncated"
        )
    return end
