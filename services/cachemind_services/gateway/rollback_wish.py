"""What a caller of `POST /v1/rollback` asks for, and which version that is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from cachemind.core.rollback_report import (
    REASON_CHARS,
    RollbackStatus,
    Strategy,
)
from cachemind.core.snapshots import SnapshotManifest
from cachemind.core.timeline import History
from cachemind.errors import InvalidRequest
from cachemind.types import EMPTY, EventId, Namespace, Version
from cachemind_services.gateway.query import Query
from cachemind_services.gateway.time_travel import TimeTravel
from cachemind_services.gateway.versions_api import (
    CONFLICT,
    FORBIDDEN,
    GONE,
    NEVER_WAS,
    limit_of,
    own,
    require_known,
    require_reached,
)

TO_VERSION: Final = "to_version"
TO_SNAPSHOT: Final = "to_snapshot"
TO_TIME: Final = "to_time"
UNDO: Final = "undo"
_TARGETS: Final = (TO_VERSION, TO_SNAPSHOT, TO_TIME, UNDO)
KNOWN: Final = frozenset(
    {
        *_TARGETS,
        "namespace",
        "expected_head",
        "dry_run",
        "strategy",
        "reason",
        "rollback_id",
        "limit",
        "bodies",
    }
)
NO_EXPECTATION: Final = -1
_CHUNK: Final = 1_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A parsed request. `by` names the parameter that says where to go."""

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
    limit: int
    bodies: bool
    one_namespace: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The version that a wish means, at this head.

    `repeats` is the rollback that is the head and has done just this already.
    """

    head: Version
    target: Version
    repeats: EventId | None


def parse_wish(query: Query, namespace: Namespace) -> Wish:
    """Return what is asked for. Raises: `InvalidRequest` naming the parameter."""
    by = [name for name in _TARGETS if name in query]
    if len(by) != 1:
        raise InvalidRequest(
            by[1] if by else TO_VERSION, "give exactly one of " + ", ".join(_TARGETS)
        )
    value = query.text(by[0])
    to_version = query.whole(TO_VERSION)
    expected = query.whole("expected_head")
    reason = query.text("reason")
    if len(reason) > REASON_CHARS:
        raise InvalidRequest("reason", f"is longer than {REASON_CHARS} characters")
    return Wish(
        namespace=own(query, namespace),
        by=by[0],
        value=value,
        to_version=None if to_version is None else Version(to_version),
        to_time_ns=parse_time(TO_TIME, value) if by[0] == TO_TIME else None,
        undo=parse_id(UNDO, value) if by[0] == UNDO else None,
        expected_head=NO_EXPECTATION if expected is None else expected,
        dry_run=query.flag("dry_run"),
        strategy=_strategy(query),
        reason=reason,
        rollback_id=_given_id(query),
        limit=limit_of(query),
        bodies=query.flag("bodies"),
        one_namespace="namespace" in query,
    )


def parse_id(field: str, text: str) -> EventId:
    """Return a UUID's bytes. Raises: `InvalidRequest`."""
    try:
        return EventId(UUID(text).bytes)
    except ValueError as error:
        raise InvalidRequest(field, "must be a rollback's id, a UUID") from error


def parse_time(field: str, text: str) -> int:
    """Return nanoseconds since the epoch of an RFC 3339 time; UTC where it says none.

    Raises: `InvalidRequest`.
    """
    try:
        found = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
    except ValueError as error:
        problem = "must be a time such as 2026-11-30T21:05:00Z"
        raise InvalidRequest(field, problem) from error
    at = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    since = at - _EPOCH
    if since.days < 0:
        raise InvalidRequest(field, "must not be before 1970")
    microseconds = (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds
    return microseconds * 1_000


def goal_of(wish: Wish, travel: TimeTravel) -> Goal:
    """Return which version `wish` means now.

    Raises: `InvalidRequest`: 409 for another head, 410 past the horizon, 422 for a
    version that never was, 404 for an unknown rollback or snapshot.
    """
    history = travel.history(wish.namespace)
    target = _target(wish, travel, history)
    require_known(history, target, wish.by)
    require_reached(travel, wish.namespace, target, wish.by)
    repeats = _repeats(wish, travel, history, target)
    if repeats is None and wish.expected_head not in (NO_EXPECTATION, history.head):
        raise InvalidRequest(
            "expected_head",
            f"is {wish.expected_head}, the head is {history.head}",
            status=CONFLICT,
        )
    return Goal(head=history.head, target=target, repeats=repeats)


def _target(wish: Wish, travel: TimeTravel, history: History) -> Version:
    if wish.to_version is not None:
        return wish.to_version
    if wish.to_time_ns is not None:
        return version_at(travel, wish.namespace, history, wish.to_time_ns)
    if wish.undo is not None:
        return _undone(wish.namespace, wish.undo, travel, history)
    return _in_snapshot(wish, travel)


def version_at(
    travel: TimeTravel, namespace: Namespace, history: History, at_ns: int
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
            rows = travel.versions(namespace, first, last)
            for row in reversed(rows):
                if row.occurred_at_ns <= at_ns:
                    return row.version
            if len(rows) != last - first + 1:
                raise InvalidRequest(TO_TIME, "is past the horizon", status=GONE)
            last = Version(first - 1)
    return EMPTY


def _undone(
    namespace: Namespace, rollback_id: EventId, travel: TimeTravel, history: History
) -> Version:
    report = travel.report(namespace, rollback_id)
    if report is None:
        raise InvalidRequest(UNDO, "there is no such rollback", status=404)
    if report.status is RollbackStatus.REFUSED or report.new_version is None:
        raise InvalidRequest(
            UNDO,
            "that rollback was refused, there is nothing to undo",
            status=NEVER_WAS,
        )
    return history.tip_before(report.new_version)


def _in_snapshot(wish: Wish, travel: TimeTravel) -> Version:
    manifest = travel.snapshot(wish.value)
    if manifest is None:
        raise InvalidRequest(TO_SNAPSHOT, "there is no such snapshot", status=404)
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
        raise InvalidRequest(TO_SNAPSHOT, "does not hold the namespace", status=422)
    return found[wish.namespace]


def versions_in(manifest: SnapshotManifest) -> dict[Namespace, Version]:
    """Return how far each namespace is in a snapshot."""
    return {
        held.namespace: held.version
        for part in manifest.partitions
        for held in part.namespaces
    }


def _repeats(
    wish: Wish, travel: TimeTravel, history: History, target: Version
) -> EventId | None:
    """Return the rollback that made the head, where it was to `target`.

    The state is that of `target` already, so one more would change nothing.
    """
    if not history.branches or history.branches[-1].at != history.head:
        return None
    if history.branches[-1].target != target:
        return None
    rows = travel.versions(wish.namespace, history.head, history.head)
    if not rows or travel.quarantine(wish.namespace) is not None:
        return None
    return rows[0].rollback_id


def _strategy(query: Query) -> Strategy | None:
    if "strategy" not in query:
        return None
    text = query.text("strategy")
    if text not in list(Strategy):
        raise InvalidRequest("strategy", "must be one of " + ", ".join(Strategy))
    return Strategy(text)


def _given_id(query: Query) -> EventId | None:
    if "rollback_id" not in query:
        return None
    return parse_id("rollback_id", query.text("rollback_id"))
