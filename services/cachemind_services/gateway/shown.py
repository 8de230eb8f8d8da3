"""Versions, reports and differences as JSON shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import orjson

from cachemind.core.delta import ChangeKind, Delta, EntryChange, fields_of
from cachemind.core.digest import to_hex
from cachemind.core.entry_diff import changed_fields
from cachemind.core.payloads import PLAIN, Payloads, opened_change
from cachemind.core.rollback_report import RollbackProgress, RollbackReport
from cachemind.core.state import Entry, VersionRow
from cachemind.core.timeline import History
from cachemind.types import EventId, Lsn, Partition
from cachemind_services.gateway.time_travel import Rehearsal

BODIES: Final = frozenset({"prompt", "response", "embedding", "parameters"})
"""Fields that hold what people wrote or were told; shown only on request."""

Shown = dict[str, Any]


def shown_id(rollback_id: EventId) -> str:
    """Return an id as a UUID is written."""
    return str(UUID(bytes=rollback_id))


def shown_report(report: RollbackReport, partition: Partition) -> Shown:
    """Return how a rollback ended."""
    return {
        "rollback_id": shown_id(report.rollback_id),
        "status": report.status.value,
        "namespace": report.namespace,
        "lsn": str(Lsn(partition, report.offset)),
        "from_version": report.from_version,
        "to_version": report.to_version,
        "version": report.new_version,
        "restored": report.restored,
        "removed": report.removed,
        "changed": report.changed,
        "replayed": report.replayed,
        "base": report.base,
        "digest": to_hex(report.digest),
        "strategy": report.strategy.value,
        "verdict": report.verdict,
        "duration_ms": report.duration_ms,
        "reason": report.reason,
    }


def shown_progress(progress: RollbackProgress) -> Shown:
    """Return how far a rollback is."""
    return {
        "phase": progress.phase.value,
        "base": progress.base,
        "replayed": progress.replayed,
        "total": progress.total,
    }


def shown_rehearsal(
    rehearsal: Rehearsal, *, limit: int, bodies: bool, payloads: Payloads = PLAIN
) -> Shown:
    """Return what a rollback would do, with the first `limit` entries."""
    delta = rehearsal.delta
    return {
        "dry_run": True,
        "from_version": rehearsal.plan.head,
        "to_version": rehearsal.plan.target,
        "restored": delta.count(ChangeKind.RESTORED),
        "removed": delta.count(ChangeKind.REMOVED),
        "changed": delta.count(ChangeKind.CHANGED),
        "replayed": rehearsal.replayed,
        "base": rehearsal.base,
        "digest": to_hex(rehearsal.digest),
        "strategy": rehearsal.strategy.value,
        "verdict": "valid",
        **shown_changes(delta, limit=limit, bodies=bodies, payloads=payloads),
    }


def shown_changes(
    delta: Delta, *, limit: int, bodies: bool, payloads: Payloads = PLAIN
) -> Shown:
    """Return the first `limit` changes, and how many more there are."""
    first = [opened_change(payloads, change) for change in delta.changes[:limit]]
    shown = [shown_change(change, bodies=bodies) for change in first]
    return {"changes": shown, "more": len(delta) - len(shown)}


def shown_change(change: EntryChange, *, bodies: bool) -> Shown:
    """Return one entry's change, field by field; bodies only where asked for.

    A field that is not shown is still named where it differs.
    """
    names = changed_fields(change)
    shown: Shown = {
        "key": change.key.hex(),
        "change": change.kind.value,
        "fields": list(names),
    }
    wanted = frozenset(names) if names else None
    for side, entry in (("before", change.before), ("after", change.after)):
        shown[side] = None if entry is None else _fields(entry, wanted, bodies)
    return shown


def shown_entry(entry: Entry, *, bodies: bool = True) -> Shown:
    """Return an entry's fields: bytes as hex, the response parsed where it is JSON."""
    return _fields(entry, None, bodies)


def shown_version(row: VersionRow, history: History, partition: Partition) -> Shown:
    """Return one line of a namespace's history."""
    return {
        "version": row.version,
        "kind": row.kind,
        "lsn": str(Lsn(partition, row.offset)),
        "occurred_at_ns": row.occurred_at_ns,
        "principal": row.principal,
        "event_id": row.event_id.hex(),
        "timeline": row.timeline,
        "parent": history.parent(row.version),
        "voided": history.is_voided(row.version),
        "entries": row.entries,
        "digest": to_hex(row.digest),
        "target": row.target,
        "rollback_id": None if row.rollback_id is None else shown_id(row.rollback_id),
        "reason": row.reason,
    }


def shown_history(history: History) -> Shown:
    """Return head, branches and voided spans."""
    return {
        "head": history.head,
        "timeline": history.timeline(history.head),
        "branches": [
            {"version": branch.at, "target": branch.target}
            for branch in history.branches
        ],
        "voided": [[span.first, span.last] for span in history.voided()],
    }


def shown_versions(
    rows: Sequence[VersionRow], history: History, partition: Partition
) -> list[Shown]:
    """Return the lines of `rows`; none above the head that `history` knows."""
    return [
        shown_version(row, history, partition)
        for row in rows
        if row.version <= history.head
    ]


def _fields(entry: Entry, wanted: frozenset[str] | None, bodies: bool) -> Shown:
    found: Shown = {
        name: value
        for name, value in fields_of(entry).items()
        if (wanted is None or name in wanted) and (bodies or name not in BODIES)
    }
    if "response" in found:
        found["response"] = _readable(entry.response)
    return found


def _readable(response: bytes) -> Any:
    try:
        return orjson.loads(response)
    except orjson.JSONDecodeError:
        return response.decode("utf-8", "replace")
