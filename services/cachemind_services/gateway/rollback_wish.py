"""What a caller of `POST /v1/rollback` asks for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from cachemind.core.rollback_goal import (
    NO_EXPECTATION,
    TARGETS,
    TO_TIME,
    TO_VERSION,
    UNDO,
    Wish,
)
from cachemind.core.rollback_report import REASON_CHARS, Strategy
from cachemind.errors import InvalidRequest
from cachemind.types import EventId, Namespace, Version
from cachemind_services.gateway.query import Query
from cachemind_services.gateway.versions_api import limit_of, own

KNOWN: Final = frozenset(
    {
        *TARGETS,
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
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A parsed request: the wish, and how much of a rehearsal to show."""

    wish: Wish
    limit: int
    bodies: bool


def parse_wish(query: Query, namespace: Namespace) -> Asked:
    """Return what is asked for. Raises: `InvalidRequest` naming the parameter."""
    return Asked(
        wish=_wish(query, namespace),
        limit=limit_of(query),
        bodies=query.flag("bodies"),
    )


def _wish(query: Query, namespace: Namespace) -> Wish:
    by = [name for name in TARGETS if name in query]
    if len(by) != 1:
        raise InvalidRequest(
            by[1] if by else TO_VERSION, "give exactly one of " + ", ".join(TARGETS)
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
