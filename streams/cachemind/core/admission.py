"""May a response be stored, for how long, and on what evidence?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cachemind.core.cache_control import Effective
from cachemind.core.confidence import Confidence, MalformedLogprobs, confidence_of
from cachemind.core.policy import Policy, Volatile
from cachemind.core.request import ChatRequest
from cachemind.core.volatile import volatile
from cachemind.events import Evidence

STRONG_ENTROPY_NATS: Final = 0.8
STRONG_CONFIDENCE_RATIO: Final = 0.9
WEAK_ENTROPY_NATS: Final = 1.2
WEAK_CONFIDENCE_RATIO: Final = 0.65
STRONG_TTL_MS: Final = 7 * 24 * 3_600 * 1_000

_COMPLETE: Final = frozenset(("stop", "tool_calls", "function_call"))
_CUT: Final = "length"
_ANSWERS: Final = ("content", "tool_calls", "function_call", "refusal", "audio")


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The response may be served for `ttl_ms` milliseconds from now."""

    ttl_ms: int
    evidence: Evidence
    finish_reason: str


@dataclass(frozen=True, slots=True)
class NotAdmitted:
    """The response is not stored; `reason` is a fixed word."""

    reason: str


def decide_admission(
    *,
    policy: Policy,
    effective: Effective,
    request: ChatRequest,
    body_ambiguous: bool,
    upstream_status: int,
    streamed: bool,
    completion: Mapping[str, object],
    response_bytes: int,
) -> Admitted | NotAdmitted:
    """Return whether a complete answer is stored, for how long, and why.

    `completion` is the whole chat completion as parsed JSON, `response_bytes` the
    size of its canonical form. An answer that never became complete (cut stream,
    client gone) must not get here.
    """
    reason = (
        _request_refusal(effective, body_ambiguous)
        or _response_refusal(request, upstream_status, completion)
        or ("too-large" if response_bytes > policy.max_entry_bytes else "")
    )
    is_volatile = volatile(_user_turns(request))
    if not reason and is_volatile and policy.volatile is Volatile.REFUSE:
        reason = "volatile-prompt"
    if reason:
        return NotAdmitted(reason)
    return _admit(
        policy,
        effective,
        _choices(completion),
        _Answer(upstream_status, streamed, is_volatile),
    )


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    streamed: bool
    volatile: bool


def _admit(
    policy: Policy,
    effective: Effective,
    choices: Sequence[Mapping[str, object]],
    answer: _Answer,
) -> Admitted | NotAdmitted:
    try:
        confidence, malformed = _worst(choices), False
    except MalformedLogprobs:
        confidence, malformed = None, True
    rule, ttl_ms = _rule(policy, confidence, malformed=malformed)
    if rule == "confidence-low":
        return NotAdmitted(rule)
    if answer.volatile:
        rule, ttl_ms = "volatile-short", min(ttl_ms, policy.uncertain_ttl_ms)
    wanted_ms = effective.requested_ttl_ms
    limits = [ttl_ms, effective.ttl_limit_ms]
    return Admitted(
        ttl_ms=min(limits if wanted_ms is None else [*limits, wanted_ms]),
        evidence=Evidence(
            rule=rule,
            upstream_status=answer.status,
            streamed=answer.streamed,
            entropy_nats=None if confidence is None else confidence.entropy_nats,
            confidence_ratio=None
            if confidence is None
            else confidence.confidence_ratio,
        ),
        finish_reason=str(choices[0]["finish_reason"]),
    )


def _rule(
    policy: Policy, confidence: Confidence | None, *, malformed: bool
) -> tuple[str, int]:
    if malformed:
        return "logprobs-malformed", policy.uncertain_ttl_ms
    if confidence is None:
        return "policy-default", policy.default_ttl_ms
    entropy, sure = confidence.entropy_nats, confidence.confidence_ratio
    if entropy < STRONG_ENTROPY_NATS and sure > STRONG_CONFIDENCE_RATIO:
        return "confidence-strong", STRONG_TTL_MS
    if entropy > WEAK_ENTROPY_NATS and sure < WEAK_CONFIDENCE_RATIO:
        return "confidence-low", 0
    return "confidence-middling", policy.uncertain_ttl_ms


def _worst(choices: Sequence[Mapping[str, object]]) -> Confidence | None:
    """Return the least sure of the choices' figures, each on its own."""
    found = [confidence_of(choice) for choice in choices]
    known = [confidence for confidence in found if confidence is not None]
    if not known:
        return None
    return Confidence(
        max(confidence.entropy_nats for confidence in known),
        min(confidence.confidence_ratio for confidence in known),
    )


def _request_refusal(effective: Effective, body_ambiguous: bool) -> str:
    if effective.bypass:
        return "bypass"
    if not effective.store:
        return "no-store"
    return "ambiguous-body" if body_ambiguous else ""


def _response_refusal(
    request: ChatRequest, status: int, completion: Mapping[str, object]
) -> str:
    if not 200 <= status < 300:
        return "upstream-status"
    if completion.get("error") is not None:
        return "upstream-error"
    choices = _choices(completion)
    if len(choices) != request.n:
        return "choices-missing"
    return next(filter(None, (_choice_refusal(request, each) for each in choices)), "")


def _choice_refusal(request: ChatRequest, choice: Mapping[str, object]) -> str:
    reason = str(choice.get("finish_reason"))
    # A cut that the request asked for is the whole answer to that request.
    if reason not in _COMPLETE and not (reason == _CUT and _asked_for_cut(request)):
        return "content-filter" if reason == "content_filter" else "unfinished"
    message = choice.get("message")
    if not isinstance(message, Mapping):
        return "empty"
    return "" if any(_filled(message.get(name)) for name in _ANSWERS) else "empty"


def _asked_for_cut(request: ChatRequest) -> bool:
    limits = ("max_tokens", "max_completion_tokens")
    return any(request.parameters.get(name) is not None for name in limits)


def _filled(answer: object) -> bool:
    return bool(answer.strip()) if isinstance(answer, str) else bool(answer)


def _choices(completion: Mapping[str, object]) -> list[Mapping[str, object]]:
    found = completion.get("choices")
    if not isinstance(found, list):
        return []
    return [choice for choice in found if isinstance(choice, Mapping)]


def _user_turns(request: ChatRequest) -> list[str]:
    contents = [
        message.get("content")
        for message in request.messages
        if message["role"] == "user"
    ]
    turns = [content for content in contents if isinstance(content, str)]
    for content in contents:
        if isinstance(content, list):
            turns += [part["text"] for part in content if _is_text(part)]
    return turns


def _is_text(part: object) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("text"), str)
