"""What the answers to a client's HTTP calls mean. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast
from uuid import UUID

import orjson

from cachemind.client.errors import (
    CallFailed,
    Conflict,
    NoCache,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    NotOffered,
    NotValid,
    PastTheHorizon,
    TooMany,
    Unavailable,
)
from cachemind.client.results import Answer, PutResult
from cachemind.core.commands import (
    ProblemCode,
    RollbackDone,
    RollbackState,
    running,
)
from cachemind.core.completion import Json, JsonObject
from cachemind.errors import InvalidEvent
from cachemind.events import Outcome
from cachemind.types import EventId, Lsn, Sha256, Version

OURS: Final = "x-cachemind-"
"""How our header fields begin."""

_SHOWN_CHARS: Final = 300
_UNKNOWN_VERSION: Final = ProblemCode.UNKNOWN_VERSION.value


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """An answer. Header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def read_answer(answer: HttpAnswer) -> Answer:
    """Return a completion. Raises: `CallFailed`."""
    return answer_of(answer.headers, document(answer, 200))


def answer_of(headers: Mapping[str, str], completion: JsonObject) -> Answer:
    """Return a completion with what the header fields say. Raises: `NoCache`."""
    found = {
        name.removeprefix(OURS): value
        for name, value in headers.items()
        if name.startswith(OURS)
    }
    similarity = found.get("similarity")
    try:
        return Answer(
            completion=completion,
            outcome=Outcome(found["outcome"]),
            trace_id=found["trace"],
            key=found.get("entry"),
            lsn=Lsn.parse(found["lsn"]) if "lsn" in found else None,
            version=int(found["version"]) if "version" in found else None,
            similarity=None if similarity is None else float(similarity),
        )
    except (KeyError, ValueError, InvalidEvent) as error:
        what = "what answered is not CacheMind: its header fields are not there"
        raise NoCache(what) from error


def problem(answer: HttpAnswer) -> CallFailed:
    """Return what an answer that is no success means."""
    error = _error_of(answer.body)
    status, code = answer.status, _word(error, "code")
    words = _word(error, "message") or "no reason given"
    message = f"{status}: {words[:_SHOWN_CHARS]}"
    after_s = _seconds(answer.headers.get("retry-after", ""))
    if status == 429:
        return TooMany(message, code=code, retry_after_s=after_s)
    if status >= 500 and status not in _KINDS:
        return Unavailable(
            message,
            status=status,
            code=code,
            # Whoever says when to come back has done nothing.
            sent=not (status == 503 and "retry-after" in answer.headers),
            retry_after_s=after_s,
        )
    kind = _KINDS.get(status, NotValid if 400 <= status < 500 else NoCache)
    if code == _UNKNOWN_VERSION:
        kind = NotFound
    return kind(message, status=status, code=code, field=_word(error, "param"))


_KINDS: Final[Mapping[int, type[CallFailed]]] = {
    401: NotAuthenticated,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    410: PastTheHorizon,
    501: NotOffered,
}


def read_put(answer: HttpAnswer) -> PutResult:
    """Return what was stored. Raises: `CallFailed`."""
    found = document(answer, 201)
    try:
        return PutResult(
            key=str(found["key"]),
            lsn=Lsn.parse(str(found["lsn"])),
            snapshot_id=str(found["snapshot_id"]),
            ttl_ms=_whole(found, "ttl_ms"),
        )
    except (KeyError, TypeError, InvalidEvent) as error:
        raise _strange("a put") from error


def read_lsn(answer: HttpAnswer) -> Lsn:
    """Return where an event is on the log. Raises: `CallFailed`."""
    try:
        return Lsn.parse(str(document(answer, 200, 201, 202).get("lsn")))
    except InvalidEvent as error:
        raise _strange("a change") from error


def read_rollback(answer: HttpAnswer, request_id: EventId) -> RollbackDone:
    """Return what a rollback did, does or would do. Raises: `CallFailed`."""
    found = document(answer, 200, 202)
    try:
        if answer.status == 202:
            return running(request_id, Version(-1))
        dry = found.get("dry_run") is True
        return RollbackDone(
            status=RollbackState.DRY_RUN if dry else RollbackState.COMMITTED,
            rollback_id=request_id
            if dry
            else EventId(UUID(str(found["rollback_id"])).bytes),
            from_version=_whole(found, "from_version"),
            to_version=Version(_whole(found, "to_version")),
            new_version=None if dry else Version(_whole(found, "version")),
            restored=_whole(found, "restored"),
            removed=_whole(found, "removed"),
            changed=_whole(found, "changed"),
            replayed=_whole(found, "replayed"),
            digest=Sha256(bytes.fromhex(str(found["digest"]))),
            verdict=str(found["verdict"]),
            duration_ms=0 if dry else _whole(found, "duration_ms"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _strange("a rollback") from error


def document(answer: HttpAnswer, *statuses: int) -> JsonObject:
    """Return the body of a success. Raises: `CallFailed`."""
    if answer.status not in statuses:
        raise problem(answer)
    found = _parsed(answer.body)
    if not isinstance(found, dict):
        what = f"{answer.status}, and the body is no JSON object"
        raise NoCache(f"what answered is not CacheMind: {what}")
    return found


def _error_of(body: bytes) -> JsonObject:
    found = _parsed(body)
    error = found.get("error") if isinstance(found, dict) else None
    return error if isinstance(error, dict) else {}


def _parsed(body: bytes) -> Json:
    try:
        return cast(Json, orjson.loads(body))
    except orjson.JSONDecodeError:
        return None


def _word(error: JsonObject, name: str) -> str:
    found = error.get(name)
    return found if isinstance(found, str) else ""


def _whole(found: JsonObject, name: str) -> int:
    value = found[name]
    if type(value) is not int:
        raise TypeError(name)
    return value


def _seconds(text: str) -> float:
    # A date is allowed as well, but nobody who answers here sends one.
    return float(text) if text.isascii() and text.isdigit() else 0.0


def _strange(what: str) -> NoCache:
    return NoCache(f"the answer of {what} is not as CacheMind's")
