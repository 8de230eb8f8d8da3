"""The members of a body that the gateway's own API takes."""

from __future__ import annotations

from typing import Final

import orjson

from cachemind.core.completion import Json, JsonObject, check_completion
from cachemind.errors import InvalidRequest, MalformedCompletion
from cachemind_services.gateway.call import Call

_MOST_TAGS: Final = 64
_LONGEST_TEXT: Final = 1024
HEX: Final = frozenset("0123456789abcdef")


def object_body(fields: JsonObject, name: str) -> bytes:
    """Return the bytes of a member that is an object. Raises: `InvalidRequest`."""
    value = fields.get(name)
    if not isinstance(value, dict):
        raise InvalidRequest(name, "must be an object")
    return orjson.dumps(value)


def completion_of(fields: JsonObject, call: Call) -> JsonObject:
    """Return the complete answer to `call`. Raises: `InvalidRequest`."""
    completion = fields.get("response")
    if not isinstance(completion, dict):
        raise InvalidRequest("response", "must be an object")
    try:
        check_completion(completion)
    except MalformedCompletion as error:
        raise InvalidRequest("response", error.reason) from error
    choices = completion["choices"]
    if call.keys is not None and isinstance(choices, list):
        wanted = call.keys.request.n
        if len(choices) != wanted:
            raise InvalidRequest("response.choices", f"must be {wanted}, as n says")
    return completion


def finish_reason(completion: JsonObject) -> str:
    """Return why the first choice of a sound completion ended."""
    choices = completion["choices"]
    first = choices[0] if isinstance(choices, list) else None
    return str(first["finish_reason"]) if isinstance(first, dict) else ""


def ttl_ms_of(fields: JsonObject, default_ms: int, most_ms: int) -> int:
    """Return the wanted life, at most `most_ms`. Raises: `InvalidRequest`."""
    ttl_s = fields.get("ttl_s")
    if ttl_s is None:
        return min(default_ms, most_ms)
    if type(ttl_s) is not int or ttl_s < 1:
        raise InvalidRequest("ttl_s", "must be whole seconds above 0")
    return min(ttl_s * 1_000, most_ms)


def tags_of(fields: JsonObject) -> tuple[str, ...]:
    """Return the tags. Raises: `InvalidRequest`."""
    tags = fields.get("tags")
    if tags is None:
        return ()
    if not isinstance(tags, list) or len(tags) > _MOST_TAGS:
        raise InvalidRequest("tags", f"must be a list of at most {_MOST_TAGS}")
    return tuple(_checked(f"tags[{index}]", tag) for index, tag in enumerate(tags))


def hex_of(fields: JsonObject, name: str, size: int) -> bytes:
    """Return `size` bytes that are given in hex. Raises: `InvalidRequest`."""
    text = text_of(fields, name)
    if len(text) != 2 * size or not HEX.issuperset(text):
        raise InvalidRequest(name, f"must be {2 * size} lower-case hex characters")
    return bytes.fromhex(text)


def text_of(fields: JsonObject, name: str, default: str | None = None) -> str:
    """Return a text that is not too long. Raises: `InvalidRequest`."""
    return _checked(name, fields.get(name, default))


def _checked(name: str, value: Json) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        raise InvalidRequest(
            name, f"must be a string of at most {_LONGEST_TEXT} characters"
        )
    return value
