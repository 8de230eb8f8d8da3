"""The commands that a client sends over Kafka, and what the replies mean. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Generic, TypeVar
from uuid import UUID

import orjson

from cachemind.client.errors import (
    CallFailed,
    Conflict,
    NoCache,
    NotAllowed,
    NotFound,
    NotOffered,
    NotValid,
    PastTheHorizon,
    TooMany,
    Unavailable,
)
from cachemind.client.http_answers import HttpAnswer, problem
from cachemind.client.http_calls import control_fields
from cachemind.client.results import Answer, Control, PutResult
from cachemind.core.cache_commands import (
    Answered,
    CacheCommand,
    Complete,
    FindReceipt,
    Invalidate,
    Logged,
    Lookup,
    Put,
    PutDone,
    ReceiptFound,
)
from cachemind.core.commands import Problem, ProblemCode, Reply, Rollback, RollbackDone
from cachemind.core.completion import JsonObject, parse_object
from cachemind.core.rollback_goal import NO_EXPECTATION
from cachemind.errors import MalformedCompletion
from cachemind.events import Feedback, SelectorKind, Verdict
from cachemind.types import EventId, ExactKey, Lsn, TraceId, Version

T = TypeVar("T")
_OK: Final = 200
_SUCCESS: Final = range(200, 300)
_NS_PER_US: Final = 1_000
_MS_PER_S: Final = 1_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaAsk(Generic[T]):
    """A command, and what its reply means. `read` raises `CallFailed`."""

    body: Rollback | CacheCommand
    read: Callable[[Reply], T]


def complete(request: JsonObject, control: Control) -> KafkaAsk[Answer]:
    """Ask for a completion. Raises: `NotValid`."""
    plain = _lookup(request, control)
    body = Complete(
        request=plain.request,
        cache_control=plain.cache_control,
        mode=plain.mode,
        threshold=plain.threshold,
        ttl_s=control.ttl_s,
    )

    def read(reply: Reply) -> Answer:
        answered = _body(reply, Answered)
        if answered.status not in _SUCCESS:
            raise _refused(answered)
        return _answer(reply, answered)

    return KafkaAsk(body=body, read=read)


def lookup(request: JsonObject, control: Control) -> KafkaAsk[Answer | None]:
    """Ask for what is cached, None where nothing is. Raises: `NotValid`."""

    def read(reply: Reply) -> Answer | None:
        answered = _body(reply, Answered)
        return _answer(reply, answered) if answered.status == _OK else None

    return KafkaAsk(body=_lookup(request, control), read=read)


def put(
    request: JsonObject, response: JsonObject, ttl_s: int | None, tags: Sequence[str]
) -> KafkaAsk[PutResult]:
    """Ask to store `response` as the answer to `request`. Raises: `NotValid`."""

    def read(reply: Reply) -> PutResult:
        done = _body(reply, PutDone)
        return PutResult(
            key=done.key.hex(),
            lsn=_lsn(reply),
            snapshot_id=done.snapshot_id,
            ttl_ms=done.ttl_ms,
        )

    body = Put(
        request=_json(request), response=_json(response), ttl_s=ttl_s, tags=tuple(tags)
    )
    return KafkaAsk(body=body, read=read)


def invalidate(kind: SelectorKind, value: str, reason: str) -> KafkaAsk[Lsn]:
    """Ask that entries are served no more."""
    return KafkaAsk(
        body=Invalidate(kind=kind, value=value, reason=reason), read=_logged
    )


def feedback(key: str, trace_id: str, verdict: Verdict) -> KafkaAsk[Lsn]:
    """Tell what a served hit was worth."""
    body = Feedback(
        matched_key=ExactKey(bytes.fromhex(key)),
        served_trace_id=TraceId(bytes.fromhex(trace_id)),
        verdict=verdict,
    )
    return KafkaAsk(body=body, read=_logged)


def rollback(
    goal: Mapping[str, str], expected_head: int | None, reason: str, *, dry: bool
) -> KafkaAsk[RollbackDone]:
    """Ask for a rollback. Raises: `NotValid`."""
    body = Rollback(
        expected_head=NO_EXPECTATION if expected_head is None else expected_head,
        dry_run=dry,
        reason=reason,
    )
    for name, value in goal.items():
        body = _aimed(body, name, value)
    return KafkaAsk(body=body, read=lambda reply: _body(reply, RollbackDone))


def receipts(
    trace_id: str, wait_s: float, after: int | None
) -> KafkaAsk[JsonObject | None]:
    """Ask for a page of the receipts of a trace, None where there are none yet."""
    body = FindReceipt(
        trace_id=TraceId(bytes.fromhex(trace_id)),
        after=-1 if after is None else after,
        wait_ms=int(wait_s * _MS_PER_S),
    )

    def read(reply: Reply) -> JsonObject | None:
        found = reply.body
        if isinstance(found, Problem) and found.code is ProblemCode.NOT_FOUND:
            return None
        try:
            return parse_object(_body(reply, ReceiptFound).document)
        except MalformedCompletion as error:
            raise NoCache(f"the receipts are {error.reason}") from error

    return KafkaAsk(body=body, read=read)


def _aimed(body: Rollback, name: str, value: str) -> Rollback:
    try:
        match name:
            case "to_version":
                return replace(body, to_version=Version(int(value)))
            case "to_time":
                return replace(body, to_time_ns=_time_ns(value))
            case "undo":
                return replace(body, undo=EventId(UUID(value).bytes))
            case _:
                return replace(body, to_snapshot=value)
    except ValueError as error:
        raise NotValid(f"{name}: must be {_EXPECTED[name]}", field=name) from error


_EXPECTED: Final = {
    "to_version": "a whole number",
    "to_time": "a time such as 2026-11-30T21:05:00Z",
    "undo": "a rollback's id, a UUID",
}


def _time_ns(text: str) -> int:
    found = datetime.fromisoformat(text)
    at = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    since = at - _EPOCH
    microseconds = (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds
    return microseconds * _NS_PER_US


def _lookup(request: JsonObject, control: Control) -> Lookup:
    fields = control_fields(control)
    return Lookup(
        request=_json(request),
        cache_control=fields.get("cache-control", ""),
        mode=fields.get("x-cachemind-mode", ""),
        threshold=control.threshold,
    )


def _json(document: JsonObject) -> bytes:
    try:
        return orjson.dumps(document)
    except TypeError as error:
        raise NotValid(f"the request is not JSON: {error}", field="body") from error


# ---- replies ------------------------------------------------------------------------


def _body(reply: Reply, kind: type[T]) -> T:
    if isinstance(reply.body, Problem):
        raise failed(reply.body)
    if not isinstance(reply.body, kind):
        raise NoCache(f"the reply is a {type(reply.body).__name__}")
    return reply.body


def _logged(reply: Reply) -> Lsn:
    _body(reply, Logged)
    return _lsn(reply)


def _lsn(reply: Reply) -> Lsn:
    if reply.lsn is None:
        raise NoCache("the reply does not say where the event is")
    return reply.lsn


def _answer(reply: Reply, answered: Answered) -> Answer:
    try:
        completion = parse_object(answered.message)
    except MalformedCompletion as error:
        raise NoCache(f"the answer is {error.reason}") from error
    return Answer(
        completion=completion,
        outcome=answered.outcome,
        trace_id=reply.trace_id.hex(),
        key=None if answered.key is None else answered.key.hex(),
        lsn=reply.lsn,
        version=None if reply.version < 0 else reply.version,
        similarity=answered.similarity,
    )


def _refused(answered: Answered) -> CallFailed:
    if answered.status == 0:
        return Unavailable(f"there is no answer: {answered.reason or 'no reason'}")
    return problem(
        HttpAnswer(status=answered.status, headers={}, body=answered.message)
    )


def failed(found: Problem) -> CallFailed:
    """Return what a problem means, as the same over HTTP would."""
    code, message = found.code, found.message or str(found.code)
    if found.field and code is not ProblemCode.FORBIDDEN:
        message = f"{found.field}: {message}"  # there the message names the right
    match code:
        case ProblemCode.UNAVAILABLE | ProblemCode.UPSTREAM_UNAVAILABLE:
            return Unavailable(message, code=code)
        case ProblemCode.RATE_LIMITED:
            return TooMany(message, code=code)
        case _:
            kind, status = _KINDS.get(code, (CallFailed, 0))
            return kind(message, status=status, code=code, field=found.field)


_KINDS: Final[Mapping[ProblemCode, tuple[type[CallFailed], int]]] = {
    ProblemCode.INVALID_REQUEST: (NotValid, 400),
    ProblemCode.TOO_LARGE: (NotValid, 413),
    ProblemCode.FORBIDDEN: (NotAllowed, 403),
    ProblemCode.NOT_FOUND: (NotFound, 404),
    ProblemCode.UNKNOWN_VERSION: (NotFound, 422),
    ProblemCode.WRONG_HEAD: (Conflict, 409),
    ProblemCode.PAST_THE_HORIZON: (PastTheHorizon, 410),
    ProblemCode.NOT_OFFERED: (NotOffered, 501),
}
