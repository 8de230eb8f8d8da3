"""The demo upstream's view of a chat request: parsed, defaulted, bounded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from cachemind.errors import CacheError
from cachemind_services.demo.chat_sampling import Sampling

DEFAULT_MAX_TOKENS: Final = 48
MOST_TOKENS: Final = 1_024
MOST_CHOICES: Final = 8
MOST_TOP_LOGPROBS: Final = 20
MOST_STOPS: Final = 4
DEFAULT_TEMPERATURE: Final = 0.2
"""What the model's authors advise; it rambles at the protocol's default of 1."""

DEFAULT_TOP_P: Final = 0.9
_ROLES: Final = frozenset({"system", "user", "assistant"})
_UNSUPPORTED: Final[Mapping[str, tuple[object, ...]]] = {
    "tools": (None, []),
    "functions": (None, []),
    "response_format": (None, {"type": "text"}),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "logit_bias": (None, {}),
    "modalities": (None, ["text"]),
}
"""Fields that this server would have to ignore, and the values that ask nothing."""


class RequestProblem(CacheError):
    """A request that is answered with an error in OpenAI's form."""

    def __init__(
        self,
        message: str,
        param: str | None,
        *,
        status: int = 400,
        code: str | None = None,
        kind: str = "invalid_request_error",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = {
            "error": {"message": message, "type": kind, "param": param, "code": code}
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCall:
    """One chat completion to make."""

    messages: tuple[dict[str, str], ...]
    sampling: Sampling
    choices: int
    stream: bool
    include_usage: bool
    logprobs: bool


def parse_call(body: bytes, model: str) -> ChatCall:
    """Return the call in `body`. Raises: `RequestProblem` naming the field."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestProblem(f"body is not JSON: {error}", None) from error
    if not isinstance(fields, dict):
        raise RequestProblem("body must be a JSON object", None)
    if fields.get("model") != model:
        raise RequestProblem(
            f"this demo upstream serves only the model {model}",
            "model",
            status=404,
            code="model_not_found",
        )
    for name, harmless in _UNSUPPORTED.items():
        if fields.get(name) not in harmless:
            raise RequestProblem(f"{name} is not supported by this model", name)
    logprobs = _flag(fields, "logprobs")
    return ChatCall(
        messages=_messages(fields.get("messages")),
        sampling=_sampling(fields, logprobs=logprobs),
        choices=_whole(fields, "n", 1, 1, MOST_CHOICES),
        stream=_flag(fields, "stream"),
        include_usage=_include_usage(fields.get("stream_options")),
        logprobs=logprobs,
    )


def _sampling(fields: Mapping[str, Any], *, logprobs: bool) -> Sampling:
    top = _whole(fields, "top_logprobs", 0, 0, MOST_TOP_LOGPROBS)
    if top and not logprobs:
        raise RequestProblem("top_logprobs needs logprobs", "top_logprobs")
    old = _whole(fields, "max_tokens", DEFAULT_MAX_TOKENS, 1, MOST_TOKENS)
    seed = fields.get("seed")
    return Sampling(
        temperature=_number(fields, "temperature", DEFAULT_TEMPERATURE, 0.0, 2.0),
        top_p=_number(fields, "top_p", DEFAULT_TOP_P, 0.0, 1.0),
        max_tokens=_whole(fields, "max_completion_tokens", old, 1, MOST_TOKENS),
        stop=_stop(fields.get("stop")),
        seed=None if seed is None else _whole(fields, "seed", 0, -(2**63), 2**63 - 1),
        top_logprobs=top,
    )


def _messages(found: object) -> tuple[dict[str, str], ...]:
    if not isinstance(found, list) or not found:
        raise RequestProblem("messages must be a list with at least one", "messages")
    return tuple(_message(item, f"messages[{i}]") for i, item in enumerate(found))


def _message(found: object, where: str) -> dict[str, str]:
    if not isinstance(found, dict):
        raise RequestProblem(f"{where} must be an object", where)
    role = found.get("role")
    role = "system" if role == "developer" else role
    if role not in _ROLES:
        raise RequestProblem(
            f"{where}.role must be system, developer, user or assistant", where
        )
    return {"role": role, "content": _content(found.get("content"), where)}


def _content(found: object, where: str) -> str:
    if isinstance(found, str):
        return found
    if isinstance(found, list):
        texts = [
            part["text"]
            for part in found
            if isinstance(part, dict)
            and part.get("type") == "text"
            and isinstance(part.get("text"), str)
        ]
        if len(texts) == len(found):
            return "".join(texts)
    raise RequestProblem(f"{where}.content must be text or text parts", where)


def _stop(found: object) -> tuple[str, ...]:
    listed = [found] if isinstance(found, str) else (found or [])
    if (
        not isinstance(listed, list)
        or len(listed) > MOST_STOPS
        or not all(isinstance(mark, str) and mark for mark in listed)
    ):
        raise RequestProblem(f"stop takes up to {MOST_STOPS} texts", "stop")
    return tuple(listed)


def _include_usage(found: object) -> bool:
    if found is None:
        return False
    if not isinstance(found, dict):
        raise RequestProblem("stream_options must be an object", "stream_options")
    return _flag(found, "include_usage")


def _flag(fields: Mapping[str, Any], name: str) -> bool:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise RequestProblem(f"{name} must be true or false", name)
    return bool(value)


def _whole(
    fields: Mapping[str, Any], name: str, default: int, low: int, high: int
) -> int:
    value = fields.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestProblem(f"{name} must be a whole number", name)
    if not low <= value <= high:
        raise RequestProblem(f"{name} must be from {low} to {high}", name)
    return value


def _number(
    fields: Mapping[str, Any], name: str, default: float, low: float, high: float
) -> float:
    value = fields.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestProblem(f"{name} must be a number", name)
    if not low <= value <= high:
        raise RequestProblem(f"{name} must be from {low:g} to {high:g}", name)
    return float(value)
