"""Everything that one commit writes, as rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cachemind.adapters.store_journal import Journal
from cachemind.adapters.store_rows import Row, applied_rows, namespace_rows
from cachemind.core.state import Change, Entry, Step
from cachemind.core.working_set import Mutations, merged
from cachemind.types import ContextKey, ExactKey, Namespace, Offset


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one commit, to be written all or nothing, and its journal lines.

    The lines are None where the entries were put before it and nobody noted which.
    """

    rows: Sequence[Row]
    changes: Sequence[Change] | None


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
    told = True
    for namespace, taken in steps.items():
        total = merged(taken)
        rows.extend(namespace_rows(namespace, total))
        changes.extend(total.changes(namespace))
        told = told and not total.placed
    lines = changes if told else None
    rows.extend(journal.rows(applied, lines))
    rows.extend(applied_rows(before, applied))
    return Batch(rows, lines)


def placing_rows(
    namespace: Namespace,
    entries: Mapping[ExactKey, Entry | None],
    removed_contexts: Mapping[ExactKey, ContextKey],
) -> Iterator[Row]:
    """Yield the rows that bring entries into a store's copy, and nothing else."""
    total = Mutations()
    total.put(entries, removed_contexts)
    return namespace_rows(namespace, total)
