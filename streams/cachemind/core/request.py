"""A chat completion request, checked as far as the cache must understand it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from cachemind.errors import InvalidRequest

_NOT_PARAMETERS: Final = ("model", "messages", "stream", "stream_options")
_NUMBERS: Final = ("temperature", "top_p")
_LIMITS: Final = ("max_tokens", "max_completion_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """What a body asks for.

    `parameters` is every field of the body but model, messages, stream and
    stream_options, unknown ones too. `user_texts` holds the text parts of the last
    message where that is a user's and nothing but text, else it is empty.
    """

    model: str
    stream: bool
    include_usage: bool
    n: int
    messages: Sequence[Mapping[str, object]]
    user_texts: tuple[str, ...]
    parameters: Mapping[str, object]

    @property
    def last_user_text(self) -> str | None:
        """Return the last user turn, None where it is not plain text or is blank.

        Without it nothing may be compared by meaning.
        """
        text = "\n".join(self.user_texts)
        return text if text and not text.isspace() else None


def parse_chat(body: bytes) -> ChatRequest:
    """Return the request in `body`; fields the cache does not know are kept.

    Raises: `InvalidRequest` naming the field that is missing or malformed.
    """
    fields = _object(body)
    model = fields.get("model")
    if type(model) is not str or not model:
        raise _wrong("model", model, "a non-empty string")
    messages = _messages(fields.get("messages"))
    stream = fields.get("stream")
    if stream is not None and type(stream) is not bool:
        raise _wrong("stream", stream, "true or false")
    options = fields.get("stream_options")
    _check_parameters(fields)
    return ChatRequest(
        model=model,
        stream=stream is True,
        include_usage=options is not None and _include_usage(options),
        n=_count(fields.get("n")),
        messages=messages,
        user_texts=_user_texts(messages[-1]),
        parameters={
            name: value for name, value in fields.items() if name not in _NOT_PARAMETERS
        },
    )


def _object(body: bytes) -> dict[str, object]:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _not_json(body, error) from error
    if type(fields) is not dict:
        raise InvalidRequest("body", f"must be an object, found {_kind(fields)}")
    return fields


def _not_json(body: bytes, error: orjson.JSONDecodeError) -> InvalidRequest:
    try:
        body.decode()
    except UnicodeDecodeError as found:
        return InvalidRequest("body", f"is not UTF-8 at byte {found.start}")
    if not body.strip():
        return InvalidRequest("body", "is empty")
    return InvalidRequest("body", f"is not JSON at character {error.pos}")


def _messages(found: object) -> list[dict[str, object]]:
    if type(found) is not list or not found:
        raise _wrong("messages", found, "a non-empty list")
    for message in found:
        if type(message) is not dict or type(message.get("role")) is not str:
            raise _wrong_message(found)
    return found


def _wrong_message(messages: Sequence[object]) -> InvalidRequest:
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            return _wrong(f"messages[{index}]", message, "an object")
        role = message.get("role")
        if not isinstance(role, str):
            return _wrong(f"messages[{index}].role", role, "a string")
    raise AssertionError("called with well-formed messages")


def _check_parameters(fields: Mapping[str, object]) -> None:
    for name in _NUMBERS:
        value = fields.get(name)
        if value is not None and type(value) is not float and type(value) is not int:
            raise _wrong(name, value, "a number")
    for name in _LIMITS:
        value = fields.get(name)
        if value is not None and (type(value) is not int or value < 0):
            raise _wrong(name, value, "a whole number, not negative")


def _count(found: object) -> int:
    if found is None:
        return 1
    if type(found) is not int or found < 1:
        raise _wrong("n", found, "a whole number of at least 1")
    return found


def _include_usage(options: object) -> bool:
    if not isinstance(options, dict):
        raise _wrong("stream_options", options, "an object")
    wanted = options.get("include_usage")
    if wanted is not None and type(wanted) is not bool:
        raise _wrong("stream_options.include_usage", wanted, "true or false")
    return wanted is True


def _user_texts(message: Mapping[str, object]) -> tuple[str, ...]:
    if message["role"] != "user":
        return ()
    content = message.get("content")
    if type(content) is str:
        return (content,)
    if not isinstance(content, list):
        return ()
    texts = [_text_of(part) for part in content]
    plain = tuple(text for text in texts if text is not None)
    return plain if len(plain) == len(texts) else ()


def _text_of(part: object) -> str | None:
    if not isinstance(part, dict) or part.get("type") != "text":
        return None
    text = part.get("text")
    return text if isinstance(text, str) else None


def _wrong(field: str, found: object, expected: str) -> InvalidRequest:
    # The kind, never the value: a value may be a prompt or a secret.
    kind = "nothing" if found is None else _kind(found)
    return InvalidRequest(field, f"must be {expected}, found {kind}")


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case str():
            return "a string" if value else "an empty string"
        case int() | float():
            return "a number" if value >= 0 else "a negative number"
        case list():
            return "a list" if value else "an empty list"
        case _:
            return "an object"
