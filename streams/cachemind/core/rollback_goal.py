"""A wish to roll back, and what is to be done about it: decided from the state alone.

Whoever asks, over HTTP or with a command on Kafka, is answered from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from cachemind.core.rollback_report import (
    RollbackReport,
    RollbackStatus,
    Strategy,
)
from cachemind.core.snapshots import SnapshotManifest
from cachemind.core.state import VersionRow
from cachemind.core.timeline import History
from cachemind.errors import InvalidRequest, LogUnavailable
from cachemind.events import RolledBack
from cachemind.types import EMPTY, EventId, Namespace, Version

TO_VERSION: Final = "to_version"
TO_SNAPSHOT: Final = "to_snapshot"
TO_TIME: Final = "to_time"
UNDO: Final = "undo"
TARGETS: Final = (TO_VERSION, TO_SNAPSHOT, TO_TIME, UNDO)
NO_EXPECTATION: Final = -1

FORBIDDEN: Final = 403
UNKNOWN: Final = 404
CONFLICT: Final = 409
GONE: Final = 410
NEVER_WAS: Final = 422
CODES: Final[Mapping[int, str]] = {
    FORBIDDEN: "namespace_not_served",
    UNKNOWN: "not_found",
    CONFLICT: "wrong_head",
    GONE: "past_the_horizon",
    NEVER_WAS: "unknown_version",
}
"""What a refusal is called, by the status that an `InvalidRequest` of it has."""

_CHUNK: Final = 1_000


class PastLooks(Protocol):
    """What a decision looks at, all of one moment. Raises: `StoreUnavailable`."""

    def history(self, namespace: Namespace) -> History:
        """Return the rollbacks and the head."""
        ...

    def versions(
        self, namespace: Namespace, first: Version, last: Version
    ) -> Sequence[VersionRow]:
        """Return the history rows in [first, last], in order."""
        ...

    def is_quarantined(self, namespace: Namespace) -> bool:
        """Return whether the namespace must not be served."""
        ...

    def report(
        self, namespace: Namespace, rollback_id: EventId
    ) -> RollbackReport | None:
        """Return how a rollback ended, None where it did not yet."""
        ...

    def met(self, namespace: Namespace, rollback_id: EventId) -> bool:
        """Return whether a rollback was folded, its report kept or not."""
        ...

    def reaches(self, namespace: Namespace, version: Version) -> bool:
        """Return whether checkpoints and log still lead to `version`."""
        ...

    def begins(self, namespace: Namespace) -> Version:
        """Return the oldest version that something kept leads to."""
        ...

    def snapshot(self, name: str) -> SnapshotManifest | None:
        """Return the newest snapshot of this name or id, None where there is none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is asked for. `by` names the part that says where to go, `value` how."""

    namespace: Namespace
    by: str
    value: str
    to_version: Version | None
    to_time_ns: int | None
    undo: EventId | None
    expected_head: int
    dry_run: bool
    strategy: Strategy | None
    reason: str
    rollback_id: EventId | None
    one_namespace: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The version that a wish means, at this head.

    `repeats` is the rollback that is the head and has done just this already.
    """

    head: Version
    target: Version
    repeats: EventId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """It was done before, and nothing is left to do. `repeated`: under another id."""

    report: RollbackReport
    repeated: bool


def decided(wish: Wish, past: PastLooks, fresh: EventId) -> Done | RolledBack:
    """Return the event to append for `wish`, or how it ended before.

    `fresh` is the id to use where the wish brings none. Where a strategy is asked for,
    the rollback is to be rehearsed before, and meant for the head that it was
    rehearsed at.
    Raises: as `goal_of`; `LogUnavailable` where a report is not there yet.
    """
    known = _known(wish, past)
    if known is not None:
        return Done(report=known, repeated=False)
    goal = goal_of(wish, past)
    if goal.repeats is not None:
        report = past.report(wish.namespace, goal.repeats)
        if report is None:
            raise LogUnavailable("the report of the last rollback is not there yet")
        return Done(report=report, repeated=True)
    return RolledBack(
        rollback_id=wish.rollback_id or fresh,
        to_version=goal.target,
        expected_head=wish.expected_head if wish.strategy is None else goal.head,
        reason=wish.reason,
    )


def _known(wish: Wish, past: PastLooks) -> RollbackReport | None:
    if wish.rollback_id is None:
        return None
    known = past.report(wish.namespace, wish.rollback_id)
    if known is not None and wish.to_version not in (None, known.to_version):
        problem = f"is that of a rollback to version {known.to_version}"
        raise InvalidRequest("rollback_id", problem)
    if known is None:
        require_not_forgotten(past, wish.namespace, wish.rollback_id, "rollback_id")
    return known


def require_not_forgotten(
    past: PastLooks, namespace: Namespace, rollback_id: EventId, field: str
) -> None:
    """Raise `InvalidRequest` with 410 for a rollback whose report is not kept."""
    if past.met(namespace, rollback_id):
        raise InvalidRequest(
            field,
            "is of a rollback that is past the horizon: what is kept begins at version "
            f"{past.begins(namespace)}",
            status=GONE,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Why a rollback that was on the log did not do what it says."""

    status: int
    code: str
    field: str | None


def ending(report: RollbackReport) -> Ending | None:
    """Return what went wrong with a rollback, None where it was committed."""
    match report.status:
        case RollbackStatus.COMMITTED:
            return None
        case RollbackStatus.REFUSED if report.to_version > report.from_version:
            return Ending(status=NEVER_WAS, code=CODES[NEVER_WAS], field=TO_VERSION)
        case RollbackStatus.REFUSED:
            return Ending(status=CONFLICT, code=CODES[CONFLICT], field="expected_head")
        case RollbackStatus.QUARANTINED:
            return Ending(status=500, code="quarantined", field=None)


def require_known(history: History, version: Version, field: str) -> None:
    """Raise `InvalidRequest` with 422 for a version that never was."""
    if not EMPTY <= version <= history.head:
        raise InvalidRequest(
            field, f"is {version}, the newest is {history.head}", status=NEVER_WAS
        )


def require_reached(
    past: PastLooks, namespace: Namespace, version: Version, field: str
) -> None:
    """Raise `InvalidRequest` with 410 for a version that nothing leads to any more."""
    if not past.reaches(namespace, version):
        raise InvalidRequest(
            field,
            f"is {version}, which neither a checkpoint nor the log leads to any more: "
            f"what is kept begins at version {past.begins(namespace)}",
            status=GONE,
        )


def goal_of(wish: Wish, past: PastLooks) -> Goal:
    """Return which version `wish` means now.

    Raises: `InvalidRequest`: 409 for another head, 410 past the horizon, 422 for a
    version that never was, 404 for an unknown rollback or snapshot.
    """
    history = past.history(wish.namespace)
    target = _target(wish, past, history)
    require_known(history, target, wish.by)
    require_reached(past, wish.namespace, target, wish.by)
    repeats = _repeats(wish, past, history, target)
    if repeats is None and wish.expected_head not in (NO_EXPECTATION, history.head):
        raise InvalidRequest(
            "expected_head",
            f"is {wish.expected_head}, the head is {history.head}",
            status=CONFLICT,
        )
    return Goal(head=history.head, target=target, repeats=repeats)


def _target(wish: Wish, past: PastLooks, history: History) -> Version:
    if wish.to_version is not None:
        return wish.to_version
    if wish.to_time_ns is not None:
        return version_at(past, wish.namespace, history, wish.to_time_ns)
    if wish.undo is not None:
        return _undone(wish.namespace, wish.undo, past, history)
    return _in_snapshot(wish, past)


def version_at(
    past: PastLooks, namespace: Namespace, history: History, at_ns: int
) -> Version:
    """Return the newest version of the head's lineage that claims to be from `at_ns`
    or earlier; 0 where none does.

    Times are the writers' clocks and may be out of step; the order is the log's. So
    all that the log has before that version belongs to it, whatever time it claims.
    Raises: `InvalidRequest` with 410 where history does not reach back that far.
    """
    for span in reversed(history.lineage(history.head)):
        last = span.last
        while last >= span.first:
            first = Version(max(span.first, last - _CHUNK + 1))
            rows = past.versions(namespace, first, last)
            for row in reversed(rows):
                if row.occurred_at_ns <= at_ns:
                    return row.version
            if len(rows) != last - first + 1:
                raise InvalidRequest(TO_TIME, "is past the horizon", status=GONE)
            last = Version(first - 1)
    return EMPTY


def _undone(
    namespace: Namespace, rollback_id: EventId, past: PastLooks, history: History
) -> Version:
    report = past.report(namespace, rollback_id)
    if report is None:
        require_not_forgotten(past, namespace, rollback_id, UNDO)
        raise InvalidRequest(UNDO, "there is no such rollback", status=UNKNOWN)
    if report.status is RollbackStatus.REFUSED or report.new_version is None:
        raise InvalidRequest(
            UNDO,
            "that rollback was refused, there is nothing to undo",
            status=NEVER_WAS,
        )
    return history.tip_before(report.new_version)


def _in_snapshot(wish: Wish, past: PastLooks) -> Version:
    manifest = past.snapshot(wish.value)
    if manifest is None:
        raise InvalidRequest(TO_SNAPSHOT, "there is no such snapshot", status=UNKNOWN)
    found = versions_in(manifest)
    others = sorted(set(found) - {wish.namespace})
    if others and not wish.one_namespace:
        raise InvalidRequest(
            TO_SNAPSHOT,
            f"covers {others[0]} too, which is not served by this gateway; give "
            f"namespace={wish.namespace} to roll back that one alone",
            status=FORBIDDEN,
        )
    if wish.namespace not in found:
        raise InvalidRequest(
            TO_SNAPSHOT, "does not hold the namespace", status=NEVER_WAS
        )
    return found[wish.namespace]


def versions_in(manifest: SnapshotManifest) -> dict[Namespace, Version]:
    """Return how far each namespace is in a snapshot."""
    return {
        held.namespace: held.version
        for part in manifest.partitions
        for held in part.namespaces
    }


def _repeats(
    wish: Wish, past: PastLooks, history: History, target: Version
) -> EventId | None:
    """Return the rollback that made the head, where it was to `target`.

    The state is that of `target` already, so one more would change nothing.
    """
    if not history.branches or history.branches[-1].at != history.head:
        return None
    if history.branches[-1].target != target:
        return None
    rows = past.versions(wish.namespace, history.head, history.head)
    if not rows or past.is_quarantined(wish.namespace):
        return None
    return rows[0].rollback_id
