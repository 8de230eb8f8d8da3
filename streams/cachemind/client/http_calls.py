"""The HTTP calls that a client makes. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar
from urllib.parse import quote, urlencode
from uuid import UUID

import orjson

from cachemind.client.errors import NotValid
from cachemind.client.http_answers import (
    OURS,
    HttpAnswer,
    document,
    problem,
    read_answer,
    read_lsn,
    read_put,
    read_rollback,
)
from cachemind.client.repeating import Again
from cachemind.client.results import Answer, Control, PutResult
from cachemind.core.commands import RollbackDone
from cachemind.core.completion import JsonObject
from cachemind.events import SelectorKind, Verdict
from cachemind.types import EventId, Lsn

T = TypeVar("T")
CHAT: Final = "/v1/chat/completions"
PUT: Final = "/v1/cachemind/entries"
INVALIDATE: Final = "/v1/cachemind/invalidate"
FEEDBACK: Final = "/v1/cachemind/feedback"
ROLLBACK: Final = "/v1/rollback"
RECEIPTS: Final = "/v1/receipts/"

KEY_FIELD: Final = "x-cachemind-key"
NAMESPACE_FIELD: Final = "x-cachemind-namespace"
_JSON: Final = {"content-type": "application/json"}
_MOST_PREFER_S: Final = 300
_NOT_CACHED: Final = 504


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Who asks, and what upstream is to be shown. Never printed."""

    key: str | None = field(default=None, repr=False)
    namespace: str | None = None
    upstream: str | None = field(default=None, repr=False)

    def fields(self) -> dict[str, str]:
        """Return the header fields of every call. Raises: `NotValid`."""
        given = {
            "key": (KEY_FIELD, self.key),
            "namespace": (NAMESPACE_FIELD, self.namespace),
            "upstream_key": (
                "authorization",
                None if self.upstream is None else f"Bearer {self.upstream}",
            ),
        }
        found = {}
        for argument, (name, value) in given.items():
            if value is None:
                continue
            if not value.isascii() or not value.isprintable():
                problem = "must be printable ASCII"
                raise NotValid(f"{argument}: {problem}", field=argument)
            found[name] = value
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCall:
    """A request. `target` is path and query; header names are lower-case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask(Generic[T]):
    """A call, what its answer means, and when it may be made again.

    `read` raises `CallFailed`.
    """

    call: HttpCall
    read: Callable[[HttpAnswer], T]
    again: Again = Again.ALWAYS


def complete(request: JsonObject, control: Control) -> Ask[Answer]:
    """Ask for a completion. Raises: `NotValid`."""
    call = _post(CHAT, request, control_fields(control))
    # Done again it would be upstream's work, and bill, again.
    return Ask(call=call, read=read_answer, again=Again.UNSTARTED)


def stream(request: JsonObject, control: Control) -> HttpCall:
    """Return the call for a completion in parts. Raises: `NotValid`."""
    return _post(CHAT, {**request, "stream": True}, control_fields(control))


def lookup(request: JsonObject, control: Control) -> Ask[Answer | None]:
    """Ask for what is cached, None where nothing is. Raises: `NotValid`."""
    fields = control_fields(control)
    only = ", ".join(filter(None, (fields.get("cache-control"), "only-if-cached")))
    call = _post(CHAT, request, {**fields, "cache-control": only})

    def read(answer: HttpAnswer) -> Answer | None:
        if answer.status == _NOT_CACHED and OURS + "outcome" in answer.headers:
            return None
        return read_answer(answer)

    return Ask(call=call, read=read)


def put(
    request: JsonObject,
    response: JsonObject,
    ttl_s: int | None,
    tags: Sequence[str],
    request_id: EventId,
) -> Ask[PutResult]:
    """Ask to store `response` as the answer to `request`. Raises: `NotValid`."""
    body: JsonObject = {"request": request, "response": response, "tags": list(tags)}
    if ttl_s is not None:
        body["ttl_s"] = ttl_s
    return Ask(call=_post(PUT, body, _once(request_id)), read=read_put)


def invalidate(
    kind: SelectorKind, value: str, reason: str, request_id: EventId
) -> Ask[Lsn]:
    """Ask that entries are served no more."""
    body: JsonObject = {"kind": kind.value, "value": value, "reason": reason}
    return Ask(call=_post(INVALIDATE, body, _once(request_id)), read=read_lsn)


def feedback(
    key: str, trace_id: str, verdict: Verdict, request_id: EventId
) -> Ask[Lsn]:
    """Tell what a served hit was worth."""
    body: JsonObject = {"key": key, "trace_id": trace_id, "verdict": verdict.value}
    return Ask(call=_post(FEEDBACK, body, _once(request_id)), read=read_lsn)


def rollback(
    query: Mapping[str, str], request_id: EventId, wait_s: float
) -> Ask[RollbackDone]:
    """Ask for a rollback, done once however often this is sent."""
    asked = {**query, "rollback_id": str(UUID(bytes=request_id))}
    wait = f"wait={max(1, min(int(wait_s), _MOST_PREFER_S))}"
    call = HttpCall(
        method="POST",
        target=f"{ROLLBACK}?{urlencode(asked)}",
        headers={"prefer": wait},
        body=b"",
    )
    return Ask(call=call, read=lambda answer: read_rollback(answer, request_id))


def rollback_query(
    goal: Mapping[str, str], expected_head: int | None, reason: str, *, dry: bool
) -> dict[str, str]:
    """Return the parameters of a rollback."""
    given = {
        **goal,
        "expected_head": "" if expected_head is None else str(expected_head),
        "reason": reason,
        "dry_run": "1" if dry else "",
    }
    return {name: value for name, value in given.items() if value}


def patient_s(timeout_s: float) -> float:
    """Return how long to let the gateway wait for a fold, of all the time there is."""
    return timeout_s * 0.8


def receipts(trace_id: str, wait_s: float, after: int | None) -> Ask[JsonObject | None]:
    """Ask for a page of the receipts of a trace, None where there are none yet."""
    query = {"wait": f"{max(0, int(wait_s * 1000))}ms"}
    if after is not None:
        query["after"] = str(after)
    target = f"{RECEIPTS}{quote(trace_id, safe='')}?{urlencode(query)}"
    call = HttpCall(method="GET", target=target, headers={}, body=b"")

    def read(answer: HttpAnswer) -> JsonObject | None:
        if answer.status == 404 and problem(answer).code == "no_receipt":
            return None
        return document(answer, 200)

    return Ask(call=call, read=read)


def control_fields(control: Control) -> dict[str, str]:
    """Return the header fields that ask for `control`."""
    wishes = [
        ("no-cache", control.refresh),
        ("no-store", not control.store),
        (f"max-age={control.max_age_s}", control.max_age_s is not None),
    ]
    cache = ", ".join(name for name, wished in wishes if wished)
    mode = "off" if control.off else "exact" if control.exact else ""
    fields = {
        "cache-control": cache,
        OURS + "mode": mode,
        OURS + "threshold": ""
        if control.threshold is None
        else f"{control.threshold:.6f}",
        OURS + "ttl": "" if control.ttl_s is None else f"{control.ttl_s}s",
    }
    return {name: value for name, value in fields.items() if value}


def _once(request_id: EventId) -> dict[str, str]:
    """Return the field by which a change is made once however often it is sent."""
    return {"idempotency-key": f'"{UUID(bytes=request_id)}"'}


def _post(
    target: str, body: JsonObject, headers: Mapping[str, str] | None = None
) -> HttpCall:
    try:
        sent = orjson.dumps(body)
    except TypeError as error:
        raise NotValid(f"the request is not JSON: {error}", field="body") from error
    return HttpCall(
        method="POST", target=target, headers={**_JSON, **(headers or {})}, body=sent
    )
