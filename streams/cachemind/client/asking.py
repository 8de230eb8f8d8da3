"""What can be asked of the cache, by whichever way. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from cachemind.client import http_calls, kafka_calls
from cachemind.client.arguments import (
    RollbackGoal,
    Selector,
    completion_of,
    goal_of,
    key_of,
    selector_of,
    trace_of,
)
from cachemind.client.http_calls import Ask
from cachemind.client.kafka_calls import KafkaAsk
from cachemind.client.results import Answer, Control, PutResult
from cachemind.core.commands import RollbackDone
from cachemind.core.completion import JsonObject
from cachemind.events import Verdict
from cachemind.types import EventId, Lsn

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Generic[T]):
    """A question in either form, made when it is sent. Raises: `NotValid`.

    Over HTTP it is made from the request's id and from how long there is to wait, in
    seconds.
    """

    http: Callable[[EventId, float], Ask[T]]
    kafka: Callable[[], KafkaAsk[T]]


def complete(request: JsonObject, control: Control) -> Asked[Answer]:
    """Ask for the completion: the cached one, else upstream's."""
    return Asked(
        http=lambda _id, _s: http_calls.complete(request, control),
        kafka=partial(kafka_calls.complete, request, control),
    )


def lookup(request: JsonObject, control: Control) -> Asked[Answer | None]:
    """Ask for the cached completion alone."""
    return Asked(
        http=lambda _id, _s: http_calls.lookup(request, control),
        kafka=partial(kafka_calls.lookup, request, control),
    )


def put(
    request: JsonObject,
    model: str,
    answer: str | Mapping[str, Any],
    ttl_s: int | None,
    tags: Sequence[str],
) -> Asked[PutResult]:
    """Ask to store an answer."""
    response = completion_of(model, answer)
    return Asked(
        http=lambda once, _s: http_calls.put(request, response, ttl_s, tags, once),
        kafka=partial(kafka_calls.put, request, response, ttl_s, tags),
    )


def invalidate(selector: Selector, reason: str) -> Asked[Lsn]:
    """Ask that entries are served no more. Raises: `NotValid`."""
    kind, value = selector_of(selector)
    return Asked(
        http=lambda once, _s: http_calls.invalidate(kind, value, reason, once),
        kafka=partial(kafka_calls.invalidate, kind, value, reason),
    )


def feedback(key: str, trace_id: str, *, right: bool) -> Asked[Lsn]:
    """Tell what a served hit was worth. Raises: `NotValid`."""
    verdict = Verdict.RIGHT if right else Verdict.WRONG
    told = key_of(key), trace_of(trace_id), verdict
    return Asked(
        http=lambda once, _s: http_calls.feedback(*told, once),
        kafka=partial(kafka_calls.feedback, *told),
    )


def rollback(
    goal: RollbackGoal, expected_head: int | None, reason: str, *, dry_run: bool
) -> Asked[RollbackDone]:
    """Ask to take the namespace back. Raises: `NotValid`."""
    target = goal_of(goal)

    def by_http(request_id: EventId, timeout_s: float) -> Ask[RollbackDone]:
        query = http_calls.rollback_query(target, expected_head, reason, dry=dry_run)
        wait_s = http_calls.patient_s(timeout_s)
        return http_calls.rollback(query, request_id, wait_s)

    return Asked(
        http=by_http,
        kafka=partial(kafka_calls.rollback, target, expected_head, reason, dry=dry_run),
    )
