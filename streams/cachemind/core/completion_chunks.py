"""From one `chat.completion` to the chunks that stream it.

Law: a client that joins the chunks gets the completion back (usage only where it
asked for it). `index` in stored tool calls is the one field that a stream cannot
carry twice; it is renumbered by position.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import orjson

from cachemind.core.completion import (
    TAKEN_ONCE,
    Json,
    JsonObject,
    check_completion,
    objects,
)
from cachemind.core.sse import data_frame

_IN_EVERY_CHUNK: Final = (
    "id",
    "created",
    "model",
    "system_fingerprint",
    "service_tier",
)
_PIECE: Final = re.compile(r"(?s).{1,24}\s*")
DONE_FRAME: Final = data_frame(b"[DONE]")


def synthesise(completion: JsonObject, *, include_usage: bool) -> Iterator[JsonObject]:
    """Yield the chunks of `completion`: roles, text in pieces, calls, finish, usage.

    Raises: `MalformedCompletion`.
    """
    check_completion(completion)
    base: JsonObject = {n: completion[n] for n in _IN_EVERY_CHUNK if n in completion}
    base["object"] = "chat.completion.chunk"
    extra: JsonObject = {
        name: value
        for name, value in completion.items()
        if name not in base and name not in ("choices", "usage")
    }
    usage: JsonObject = {"usage": None} if include_usage else {}
    for choice in objects(completion["choices"]):
        for part in _choice_parts(choice):
            yield {**base, **extra, "choices": [part], **usage}
            extra = {}
    if include_usage and "usage" in completion:
        yield {**base, "choices": [], "usage": completion["usage"]}


def frames(completion: JsonObject, *, include_usage: bool) -> list[bytes]:
    """Return the event-stream frames of `completion`, `[DONE]` last.

    Raises: `MalformedCompletion`.
    """
    chunks = synthesise(completion, include_usage=include_usage)
    return [*(data_frame(orjson.dumps(chunk)) for chunk in chunks), DONE_FRAME]


def _choice_parts(choice: JsonObject) -> Iterator[JsonObject]:
    message = _object(choice["message"])
    logprobs = choice.get("logprobs")
    tokens = _token_pieces(message.get("content"), logprobs)
    whole = {
        name: value for name, value in message.items() if not _streams(name, value)
    }
    first: JsonObject = {**whole, **_numbered(message)}
    yield _part(choice, first, None if tokens else logprobs)
    for name in sorted(message, key=lambda name: name in ("content", "refusal")):
        text = message[name]
        if not isinstance(text, str) or not _streams(name, text):
            continue
        if tokens and name == "content":
            for piece, entry in tokens:
                one: JsonObject = {**_object(logprobs), "content": [entry]}
                yield _part(choice, {name: piece}, one)
        else:
            for piece in _PIECE.findall(text):
                yield _part(choice, {name: piece}, None)
    yield _last_part(choice)


def _last_part(choice: JsonObject) -> JsonObject:
    """Return the part with the finish reason and the server's own choice fields."""
    elsewhere = ("index", "delta", "message", "logprobs")
    end = {name: value for name, value in choice.items() if name not in elsewhere}
    return {"index": choice.get("index", 0), "delta": {}, **end}


def _part(choice: JsonObject, delta: JsonObject, logprobs: Json) -> JsonObject:
    part: JsonObject = {"index": choice.get("index", 0), "delta": delta}
    if "logprobs" in choice:
        part["logprobs"] = logprobs
    return {**part, "finish_reason": None}


def _streams(name: str, value: Json) -> bool:
    """Return whether a message's field goes out in pieces after the first delta."""
    return isinstance(value, str) and value != "" and name not in TAKEN_ONCE


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _numbered(message: JsonObject) -> JsonObject:
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or not calls:
        return {}
    numbered: list[Json] = [{**_object(c), "index": i} for i, c in enumerate(calls)]
    return {"tool_calls": numbered}


def _token_pieces(content: Json, logprobs: Json) -> Sequence[tuple[str, Json]]:
    """Return each token's text with its entry, where the tokens spell the content.

    Empty where they do not, or where `logprobs` holds more than the per-token lists:
    then it goes out whole.
    """
    if not isinstance(logprobs, dict) or not isinstance(content, str):
        return ()
    others = [value for name, value in logprobs.items() if name != "content"]
    entries = logprobs.get("content")
    if any(value is not None for value in others) or not isinstance(entries, list):
        return ()
    pieces = [(entry.get("token"), entry) for entry in map(_object, entries)]
    spelled = [
        (text, entry) for text, entry in pieces if isinstance(text, str) and text
    ]
    if len(spelled) != len(entries) or "".join(t for t, _ in spelled) != content:
        return ()
    return spelled
