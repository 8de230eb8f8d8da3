"""The bounded change journal: which keys each of the last commits touched.

A row is written only by a commit that changed entries and carries the offset of the
row before. A reader at offset `o` has missed nothing when the first row after `o`
says that the row before it is at or below `o`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from cachemind.adapters.store_rows import Row, journal_key, journal_offset
from cachemind.core.state import Change
from cachemind.core.state_bytes import decode_journal, encode_journal
from cachemind.types import Offset

DEFAULT_CHANGES: Final = 20_000
"""Changes kept, all rows together: 3 MB and a second of bulk replay."""


class Journal:
    """The owner's side: says what to write, and remembers what is there."""

    def __init__(self, limit: int, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """`rows` is what the store holds, in key order."""
        self._limit = limit
        self._rows = deque(
            (journal_offset(key), len(decode_journal(raw)[1])) for key, raw in rows
        )
        self._held = sum(size for _, size in self._rows)

    def rows(self, applied: Offset, changes: Sequence[Change] | None) -> Iterator[Row]:
        """Yield the rows of a commit at `applied`; call `kept` once it is durable.

        None for `changes`: nobody counted them.
        """
        if changes is None or len(changes) > self._limit:
            # Too much to tell: a row that is its own predecessor, so that every
            # reader below it starts over.
            yield from ((journal_key(offset), None) for offset, _ in self._rows)
            yield journal_key(applied), encode_journal(applied, ())
            return
        if not changes:
            return
        for offset in self._dropped(len(changes)):
            yield journal_key(offset), None
        previous = self._rows[-1][0] if self._rows else Offset(-1)
        yield journal_key(applied), encode_journal(previous, changes)

    def kept(self, applied: Offset, changes: Sequence[Change] | None) -> None:
        """Note that the rows of the commit at `applied` are in the store."""
        if changes is None or len(changes) > self._limit:
            self._rows.clear()
            self._rows.append((applied, 0))
            self._held = 0
            return
        if not changes:
            return
        told = len(changes)
        for _ in self._dropped(told):
            self._held -= self._rows.popleft()[1]
        self._rows.append((applied, told))
        self._held += told

    def _dropped(self, arriving: int) -> Sequence[Offset]:
        """Return the oldest rows that must go so that `arriving` changes fit."""
        gone: list[Offset] = []
        excess = self._held + arriving - self._limit
        for offset, size in self._rows:
            if excess <= 0:
                break
            gone.append(offset)
            excess -= size
        return gone


def changes_since(
    rows: Iterable[tuple[bytes, bytes]], offset: Offset
) -> Sequence[Change] | None:
    """Return the changes in `rows`, the journal after `offset`; None for a gap."""
    found: list[Change] = []
    for at, (_, raw) in enumerate(rows):
        previous, changes = decode_journal(raw)
        if at == 0 and previous > offset:
            return None
        found.extend(changes)
    return found
