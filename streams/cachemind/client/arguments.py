"""What a caller of the client asks for, checked before anybody is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from cachemind.client.errors import NotValid
from cachemind.core.completion import JsonObject
from cachemind.events import SelectorKind
from cachemind.types import HASH_BYTES, ID_BYTES

Messages = Iterable[Mapping[str, Any]]
DEFAULT_TIMEOUT_S: Final = 60.0
KAFKA_SCHEME: Final = "kafka://"
_ROLE: Final = "role="
_HEX: Final = frozenset("0123456789abcdef")
_MS_PER_S: Final = 1_000
_LONGEST_S: Final = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Which entries are meant: one field, or `everything`.

    `key` and `chunk` are 64 hex characters; `prefix` is the beginning of the prompt;
    `older_than_s` counts from when an entry was stored.
    """

    key: str | None = None
    prefix: str | None = None
    tag: str | None = None
    model: str | None = None
    chunk: str | None = None
    older_than_s: int | None = None
    everything: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackGoal:
    """Where to take a namespace back to: one field.

    `to_time` is RFC 3339; `undo` the id of a rollback, a UUID.
    """

    to_version: int | None = None
    to_snapshot: str | None = None
    to_time: str | None = None
    undo: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka:
    """How commands go over Kafka; nothing of it counts over HTTP.

    `properties` are librdkafka's (`security.protocol`, `sasl.username`, ...).
    `role` names the grant over which commands go, of the namespace that is asked in.
    Without one `requests` and `replies` are topics, by default those that all share of
    the installation that `topic_prefix` names.
    """

    topic_prefix: str = "cachemind"
    role: str = ""
    requests: str = ""
    replies: str = ""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)


def request_of(
    model: str, messages: Messages, parameters: Mapping[str, Any]
) -> JsonObject:
    """Return the chat completion request. Raises: `NotValid`."""
    if not model:
        raise NotValid("model: must not be empty", field="model")
    if "stream" in parameters:
        raise NotValid("stream: call `stream` for parts", field="stream")
    given = [] if isinstance(messages, str | Mapping) else list(messages)
    if not given or not all(isinstance(each, Mapping) for each in given):
        problem = 'must be a list such as [{"role": "user", "content": "..."}]'
        raise NotValid(f"messages: {problem}", field="messages")
    return {
        "model": model,
        "messages": [dict(message) for message in given],
        **parameters,
    }


def completion_of(model: str, answer: str | Mapping[str, Any]) -> JsonObject:
    """Return a whole chat completion; of a text one that says it and stops."""
    if not isinstance(answer, str):
        return dict(answer)
    message: JsonObject = {"role": "assistant", "content": answer}
    usage: JsonObject = {
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "total_tokens": 0,
    }
    return {
        "id": "chatcmpl-put",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": usage,
    }


def selector_of(selector: Selector) -> tuple[SelectorKind, str]:
    """Return the kind and value of a selector. Raises: `NotValid`."""
    age_s = selector.older_than_s
    given = {
        SelectorKind.KEY: selector.key,
        SelectorKind.PREFIX: selector.prefix,
        SelectorKind.TAG: selector.tag,
        SelectorKind.MODEL: selector.model,
        SelectorKind.CHUNK: selector.chunk,
        SelectorKind.AGE: None if age_s is None else str(age_s * _MS_PER_S),
        SelectorKind.ALL: "" if selector.everything else None,
    }
    found = [(kind, value) for kind, value in given.items() if value is not None]
    if len(found) != 1:
        raise NotValid("selector: give exactly one field", field="selector")
    return found[0]


def goal_of(goal: RollbackGoal) -> dict[str, str]:
    """Return the one target of a rollback by its name. Raises: `NotValid`."""
    given = {
        "to_version": goal.to_version,
        "to_snapshot": goal.to_snapshot,
        "to_time": goal.to_time,
        "undo": goal.undo,
    }
    found = {name: str(value) for name, value in given.items() if value is not None}
    if len(found) != 1:
        raise NotValid("goal: give exactly one field", field="goal")
    return found


def key_of(key: str) -> str:
    """Return an entry's key as it is written. Raises: `NotValid`."""
    return _hex("key", key, HASH_BYTES)


def trace_of(trace_id: str) -> str:
    """Return a trace id as it is written. Raises: `NotValid`."""
    return _hex("trace_id", trace_id, ID_BYTES)


def brokers_of(url: str) -> tuple[str, str]:
    """Return brokers and role of `kafka://HOST:PORT,...?role=ROLE`; that may be empty.

    Raises: `NotValid`.
    """
    named, asks, query = url.removeprefix(KAFKA_SCHEME).partition("?")
    brokers, role = named.rstrip("/"), query.removeprefix(_ROLE)
    wrong = not brokers or not set(brokers + role).isdisjoint("/@?#&=")
    if wrong or (asks and not (role and query.startswith(_ROLE))):
        problem = "expected kafka://HOST:PORT,HOST:PORT or that and ?role=ROLE"
        raise NotValid(f"url: {problem}", field="url")
    return brokers, role


def base_of(url: str) -> str:
    """Return the URL without a path's last slash. Raises: `NotValid`.

    A URL is never quoted: it may hold a password.
    """
    parts = urlsplit(url)
    try:
        is_one = parts.scheme in ("http", "https") and parts.hostname is not None
        parts.port  # noqa: B018 - raises where it is none
    except ValueError:
        is_one = False
    if not is_one:
        problem = "expected http://HOST:PORT, https://... or kafka://HOST:PORT,..."
        raise NotValid(f"url: {problem}", field="url")
    if parts.path.rstrip("/").endswith("/v1"):
        raise NotValid("url: leave /v1 out, as it is added", field="url")
    if parts.username is not None or parts.query or parts.fragment:
        raise NotValid("url: takes no credential, query or fragment", field="url")
    return url.rstrip("/")


def limit_of(timeout_s: float | None) -> float:
    """Return how long a call may take, in seconds. Raises: `NotValid`."""
    if timeout_s is None or not 0 < timeout_s < _LONGEST_S:
        problem = f"must be seconds above 0 and below {_LONGEST_S:.0f}"
        raise NotValid(f"timeout_s: {problem}", field="timeout_s")
    return timeout_s


def _hex(field: str, text: str, size: int) -> str:
    is_text = isinstance(text, str)  # an answer that was no hit has no key
    if not is_text or len(text) != 2 * size or not _HEX.issuperset(text):
        problem = f"must be {2 * size} lower-case hex characters"
        raise NotValid(f"{field}: {problem}", field=field)
    return text
