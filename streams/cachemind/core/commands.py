"""Commands from Kafka-native clients and their answers, and what leads to which.

A command is a value with an id of the client's own, by which it is done once however
often it arrives. What is asked for is decided by the same functions as over HTTP.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cachemind.core.cache_commands import CacheAnswer, CacheCommand
from cachemind.core.delta import ChangeKind, Delta
from cachemind.core.digest import to_bytes
from cachemind.core.identifiers import parse_traceparent
from cachemind.core.rollback_goal import (
    CODES,
    NO_EXPECTATION,
    TARGETS,
    TO_SNAPSHOT,
    TO_TIME,
    TO_VERSION,
    UNDO,
    Done,
    Goal,
    Wish,
    ending,
)
from cachemind.core.rollback_report import REASON_CHARS, RollbackReport
from cachemind.errors import (
    InvalidEvent,
    InvalidRequest,
    LogError,
    StoreError,
    UnknownVersion,
)
from cachemind.types import (
    ID_BYTES,
    EventId,
    Lsn,
    Namespace,
    Sha256,
    TraceId,
    Version,
    check_namespace,
)

REPLY_TO: Final = "reply-to"
CORRELATION_ID: Final = "correlation-id"
TRACEPARENT: Final = "traceparent"
DEADLINE: Final = "deadline"
COMMAND_HASH: Final = "command-sha256"
"""On the topic of answers: which command it was that the id stood for."""

_MOST_CORRELATION_BYTES: Final = 1024
_TOPIC: Final = re.compile(rb"[a-zA-Z0-9._-]{1,249}\Z")
_DECIMAL: Final = re.compile(rb"[0-9]{1,15}\Z")
_MOST: Final = 2**62
VALID: Final = "valid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """Take the namespace back to one of these; see `Wish`."""

    to_version: Version | None = None
    to_snapshot: str | None = None
    to_time_ns: int | None = None
    undo: EventId | None = None
    expected_head: int = NO_EXPECTATION
    dry_run: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What a client asks for."""

    request_id: EventId
    namespace: Namespace
    body: Rollback | CacheCommand

    def __post_init__(self) -> None:
        check_namespace(self.namespace)
        if len(self.request_id) != ID_BYTES or not any(self.request_id):
            raise InvalidEvent("request_id", f"must be {ID_BYTES} bytes, not all zero")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where an answer goes, and what tells its receiver what it is the answer to.

    Nobody waits for it past `deadline_ms`, milliseconds since the Unix epoch (UTC).
    """

    reply_to: str
    correlation_id: bytes
    trace_id: TraceId | None
    deadline_ms: int | None = None


class ProblemCode(StrEnum):
    """Why a command was not done, for programs."""

    INVALID_REQUEST = "invalid_request"
    NOT_FOUND = "not_found"
    WRONG_HEAD = "wrong_head"
    PAST_THE_HORIZON = "past_the_horizon"
    UNKNOWN_VERSION = "unknown_version"
    QUARANTINED = "quarantined"
    UNAVAILABLE = "unavailable"
    FAILED = "failed"
    FORBIDDEN = "forbidden"
    TOO_LARGE = "too_large"
    UPSTREAM_UNAVAILABLE = "upstream_unavailable"
    RATE_LIMITED = "rate_limited"
    NOT_OFFERED = "not_offered"


class RollbackState(StrEnum):
    """How far a rollback is."""

    COMMITTED = "committed"
    RUNNING = "running"
    DRY_RUN = "dry_run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a command was not done. `field` is the part that it is about, or empty."""

    code: ProblemCode
    field: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackDone:
    """What a rollback did, is doing or would do; see `RollbackReport`.

    While it runs, what is not known yet is -1, 0, empty or None.
    """

    status: RollbackState
    rollback_id: EventId
    from_version: int
    to_version: Version
    new_version: Version | None
    restored: int
    removed: int
    changed: int
    replayed: int
    digest: Sha256 | None
    verdict: str
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to a command. `lsn` is that of its event, None where it has none.

    `version` is the newest that was folded when it was decided, -1 where that is not
    known.
    """

    request_id: EventId
    namespace: Namespace
    trace_id: TraceId
    lsn: Lsn | None
    body: Problem | RollbackDone | CacheAnswer
    version: int = -1


def address_of(headers: tuple[tuple[str, bytes], ...]) -> Address:
    """Return where the answer to a record with these headers goes.

    Of a header that is there more than once the last one counts, as in Kafka's own
    clients. Raises: `InvalidEvent` naming the header.
    """
    found = dict(headers)
    reply_to, correlation_id = found.get(REPLY_TO), found.get(CORRELATION_ID)
    if not reply_to:
        raise InvalidEvent(REPLY_TO, "is missing")
    if not _TOPIC.match(reply_to):
        raise InvalidEvent(REPLY_TO, "is not the name of a topic")
    if not correlation_id:
        raise InvalidEvent(CORRELATION_ID, "is missing")
    if len(correlation_id) > _MOST_CORRELATION_BYTES:
        raise InvalidEvent(CORRELATION_ID, f"is above {_MOST_CORRELATION_BYTES} bytes")
    trace = found.get(TRACEPARENT, b"").decode("latin-1")
    return Address(
        reply_to=reply_to.decode("ascii"),
        correlation_id=correlation_id,
        trace_id=parse_traceparent(trace),
        deadline_ms=_deadline(found.get(DEADLINE)),
    )


def _deadline(given: bytes | None) -> int | None:
    if not given:
        return None
    if not _DECIMAL.match(given):
        raise InvalidEvent(DEADLINE, "is not milliseconds since 1970, in digits")
    return int(given)


def wish_of(command: Command) -> Wish:
    """Return what a `Rollback` wishes. Raises: `InvalidRequest` naming the part."""
    body = command.body
    if not isinstance(body, Rollback):
        raise TypeError(f"no rollback: {type(body).__name__}")
    given = {
        TO_VERSION: body.to_version,
        TO_SNAPSHOT: body.to_snapshot,
        TO_TIME: body.to_time_ns,
        UNDO: body.undo,
    }
    by = [name for name in TARGETS if given[name] is not None]
    if len(by) != 1:
        problem = "give exactly one of " + ", ".join(TARGETS)
        raise InvalidRequest(by[1] if by else TO_VERSION, problem)
    if not NO_EXPECTATION <= body.expected_head < _MOST:
        raise InvalidRequest("expected_head", "must be a version, or -1")
    if len(body.reason) > REASON_CHARS:
        raise InvalidRequest("reason", f"is longer than {REASON_CHARS} characters")
    return Wish(
        namespace=command.namespace,
        by=by[0],
        value=body.to_snapshot or "",
        to_version=body.to_version,
        to_time_ns=body.to_time_ns,
        undo=body.undo,
        expected_head=body.expected_head,
        dry_run=body.dry_run,
        strategy=None,
        reason=body.reason,
        rollback_id=command.request_id,
        one_namespace=True,
    )


def done_of(done: Done) -> RollbackDone | Problem:
    """Return the answer to a rollback that has ended."""
    report, ended = done.report, ending(done.report)
    if ended is not None and not done.repeated:
        return Problem(
            code=ProblemCode(ended.code),
            field=ended.field or "",
            message=report.verdict,
        )
    return _reported(report)


def _reported(report: RollbackReport) -> RollbackDone:
    return RollbackDone(
        status=RollbackState.COMMITTED,
        rollback_id=report.rollback_id,
        from_version=report.from_version,
        to_version=report.to_version,
        new_version=report.new_version,
        restored=report.restored,
        removed=report.removed,
        changed=report.changed,
        replayed=report.replayed,
        digest=Sha256(to_bytes(report.digest)),
        verdict=report.verdict,
        duration_ms=report.duration_ms,
    )


def rehearsed(
    request_id: EventId, goal: Goal, delta: Delta, replayed: int, digest: int
) -> RollbackDone:
    """Return the answer to a dry run of a rollback to `goal`."""
    return RollbackDone(
        status=RollbackState.DRY_RUN,
        rollback_id=request_id,
        from_version=goal.head,
        to_version=goal.target,
        new_version=None,
        restored=delta.count(ChangeKind.RESTORED),
        removed=delta.count(ChangeKind.REMOVED),
        changed=delta.count(ChangeKind.CHANGED),
        replayed=replayed,
        digest=Sha256(to_bytes(digest)),
        verdict=VALID,
        duration_ms=0,
    )


def running(rollback_id: EventId, to_version: Version) -> RollbackDone:
    """Return the answer while a rollback is not folded yet."""
    return RollbackDone(
        status=RollbackState.RUNNING,
        rollback_id=rollback_id,
        from_version=-1,
        to_version=to_version,
        new_version=None,
        restored=0,
        removed=0,
        changed=0,
        replayed=0,
        digest=None,
        verdict="",
        duration_ms=0,
    )


def problem_of(error: Exception) -> Problem:
    """Return what a client is told of what went wrong. Never a body or a secret."""
    match error:
        case InvalidRequest():
            return Problem(
                code=ProblemCode(CODES.get(error.status, ProblemCode.INVALID_REQUEST)),
                field=error.field,
                message=error.problem,
            )
        case UnknownVersion():
            code = ProblemCode.UNKNOWN_VERSION
        case LogError() | StoreError():
            code = ProblemCode.UNAVAILABLE
        case _:
            code = ProblemCode.FAILED
    return Problem(code=code, field="", message=str(error))
