"""Commands as requests over HTTP, and their answers as answers to commands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from cachemind.core.cache_commands import Answered, Complete, Lookup, Put
from cachemind.core.cache_control import CACHE_CONTROL, MODE, THRESHOLD, TTL
from cachemind.core.commands import Problem, ProblemCode
from cachemind.errors import InvalidRequest, LogUnavailable
from cachemind.events import Outcome
from cachemind.types import ExactKey, Lsn
from cachemind_services.gateway.http_io import TOO_LARGE, Header
from cachemind_services.gateway.in_process import Heard

OK: Final = 200
_ONLY_IF_CACHED: Final = "only-if-cached"
_FIELDS: Final = {
    CACHE_CONTROL: "cache_control",
    MODE: "mode",
    THRESHOLD: "threshold",
    TTL: "ttl_s",
    "body": "request",
}
"""What the part of a request is called in a command."""

_DETAIL: Final = re.compile(rb"; detail=([^;]*)")
_FORWARDED: Final = re.compile(rb"; fwd-status=(\d+)")


@dataclass(frozen=True, slots=True)
class Told:
    """What came of a command; `version` is -1 where it is not known."""

    body: Answered | Problem
    lsn: Lsn | None = None
    version: int = -1


def controls(body: Lookup | Complete) -> list[Header]:
    """Return the header fields that ask for what a command's fields ask for.

    Raises: `InvalidRequest` naming the field.
    """
    cache_control = body.cache_control
    if isinstance(body, Lookup):
        cache_control = ", ".join(filter(None, (cache_control, _ONLY_IF_CACHED)))
    found = []
    if cache_control:
        found.append((CACHE_CONTROL, cache_control))
    if body.mode:
        found.append((MODE, body.mode))
    if body.threshold is not None:
        found.append((THRESHOLD, f"{body.threshold:.17f}"))
    if isinstance(body, Complete) and body.ttl_s is not None:
        found.append((TTL, str(body.ttl_s)))
    return [(name.encode(), _ascii(name, value)) for name, value in found]


def _ascii(name: str, value: str) -> bytes:
    if not value.isascii() or not value.isprintable():
        raise InvalidRequest(_FIELDS[name], "holds what no header field can hold")
    return value.encode()


def put_fields(body: Put) -> dict[str, Any]:
    """Return the fields of a PUT over HTTP. Raises: `InvalidRequest`."""
    return {
        "request": _json("request", body.request),
        "response": _json("response", body.response),
        "ttl_s": body.ttl_s,
        "tags": list(body.tags),
    }


def _json(name: str, text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(name, "is not JSON") from error


def problem_of_request(error: InvalidRequest) -> Problem:
    """Return what a client is told of a request that makes no sense."""
    code = ProblemCode.INVALID_REQUEST
    if error.status == TOO_LARGE:
        code = ProblemCode.TOO_LARGE
    return _problem(code, _FIELDS.get(error.field, error.field), error.problem)


def told(answer: Heard) -> Told:
    """Return the answer to a look-up or a completion.

    Raises: `LogUnavailable` where the log did not take its events.
    """
    outcome = answer.headers.get(b"x-cachemind-outcome")
    if outcome is None:
        return Told(_refused(answer))
    status = answer.headers.get(b"cache-status", b"")
    return Told(
        body=_answered(answer, Outcome(outcome.decode()), status),
        lsn=_lsn(answer.headers),
        version=int(answer.headers[b"x-cachemind-version"]),
    )


def _answered(answer: Heard, outcome: Outcome, status: bytes) -> Answered | Problem:
    forwarded = _FORWARDED.search(status)
    detail = _DETAIL.search(status)
    reason = "" if detail is None else detail[1].decode()
    hit = outcome not in (Outcome.MISS, Outcome.BYPASS)
    if not answer.whole:
        text = "upstream's answer was cut short"
        return _problem(ProblemCode.UPSTREAM_UNAVAILABLE, "", text)
    if forwarded is None and not hit and reason != _ONLY_IF_CACHED:
        text = _error(answer).get("message") or "upstream did not answer"
        return _problem(ProblemCode.UPSTREAM_UNAVAILABLE, "", str(text))
    shown = hit or forwarded is not None
    return Answered(
        outcome=outcome,
        reason="" if hit or reason == _ONLY_IF_CACHED else reason,
        key=_key(answer.headers) if hit else None,
        similarity=_similarity(answer.headers),
        status=answer.status if shown else 0,
        stored=b"; stored" in status,
        message=answer.body if shown else b"",
    )


def _refused(answer: Heard) -> Problem:
    error = _error(answer)
    if error.get("code") == "wal_unavailable":
        raise LogUnavailable(str(error.get("message") or ""))
    code = ProblemCode.FAILED
    if answer.status == TOO_LARGE:
        code = ProblemCode.TOO_LARGE
    elif answer.status < 500:
        code = ProblemCode.INVALID_REQUEST
    return refusal(answer, code)


def refusal(answer: Heard, code: ProblemCode) -> Problem:
    """Return an answer that is no success as a problem of that kind."""
    error = _error(answer)
    field = str(error.get("param") or "")
    return _problem(code, _FIELDS.get(field, field), str(error.get("message") or ""))


def _error(answer: Heard) -> Mapping[str, Any]:
    try:
        found = orjson.loads(answer.body)["error"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _problem(code: ProblemCode, field: str, message: str) -> Problem:
    return Problem(code=code, field=field, message=message)


def _lsn(headers: Mapping[bytes, bytes]) -> Lsn | None:
    found = headers.get(b"x-cachemind-lsn")
    return None if found is None else Lsn.parse(found.decode())


def _key(headers: Mapping[bytes, bytes]) -> ExactKey | None:
    found = headers.get(b"x-cachemind-entry")
    return None if found is None else ExactKey(bytes.fromhex(found.decode()))


def _similarity(headers: Mapping[bytes, bytes]) -> float | None:
    found = headers.get(b"x-cachemind-similarity")
    return None if found is None else float(found)
