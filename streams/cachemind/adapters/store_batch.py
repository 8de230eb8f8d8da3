"""Everything that one commit writes, as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cachemind.adapters.store_journal import Journal
from cachemind.adapters.store_rows import Row, applied_rows, namespace_rows
from cachemind.core.state import Change, Step
from cachemind.core.working_set import merged
from cachemind.types import Namespace, Offset


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one commit, to be written all or nothing, and its journal lines."""

    rows: Sequence[Row]
    changes: Sequence[Change]


def batch_of(
    journal: Journal,
    before: Offset,
    applied: Offset,
    steps: Mapping[Namespace, Sequence[Step]],
) -> Batch:
    """Return what a commit writes that moves the applied offset on from `before`.

    Raises: `ValueError` where it would not move on, which is a caller's bug.
    """
    if applied <= before:
        raise ValueError(f"applied offset {applied} is not above {before}")
    rows: list[Row] = []
    changes: list[Change] = []
    for namespace, taken in steps.items():
        total = merged(taken)
        rows.extend(namespace_rows(namespace, total))
        changes.extend(total.changes(namespace))
    rows.extend(journal.rows(applied, changes))
    rows.extend(applied_rows(before, applied))
    return Batch(rows, changes)
