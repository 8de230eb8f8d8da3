"""From `chat.completion.chunk` events to one `chat.completion`.

What a delta's fields mean follows from their JSON type, so that fields this build
has never heard of survive: text is joined, lists are continued, objects are merged,
anything else is replaced. Null never replaces a value.
Source: OpenAI API reference, "The chat completion chunk object"; the same rules as
the `openai` client's own accumulator, except that `role`, `id` and `type` are names
and are taken once (some servers repeat them in every chunk).
"""

from __future__ import annotations

from typing import Final

import orjson

from cachemind.errors import MalformedCompletion

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
JsonObject = dict[str, Json]

DONE: Final = "[DONE]"
STREAM_ERROR: Final = "the server reports an error"
TAKEN_ONCE: Final = frozenset({"role", "id", "type"})


class CompletionAggregator:
    """Collects the chunks of one streamed completion."""

    def __init__(self) -> None:
        self._top: JsonObject = {}
        self._choices: dict[int, JsonObject] = {}
        self._tool_calls: dict[int, dict[int, JsonObject]] = {}
        self.done = False

    @property
    def complete(self) -> bool:
        """Return whether every choice has finished, and the stream said so."""
        return (
            self.done
            and bool(self._choices)
            and all(choice.get("finish_reason") for choice in self._choices.values())
        )

    def add(self, data: str) -> None:
        """Take the data of the next event.

        Raises: `MalformedCompletion` where it is not a chunk, or is an error.
        """
        if data == DONE:
            self.done = True
            return
        self.add_chunk(parse_object(data))

    def add_chunk(self, chunk: JsonObject) -> None:
        """Take the next chunk. Raises: `MalformedCompletion`, also of an error."""
        if chunk.get("error") is not None:
            raise MalformedCompletion(STREAM_ERROR)
        for name, value in chunk.items():
            if name not in ("choices", "object"):
                self._replace(self._top, name, value)
        for choice in objects(chunk.get("choices") or []):
            self._choice(choice)

    def completion(self) -> JsonObject:
        """Return the completion so far, choices and tool calls by index."""
        choices: list[Json] = []
        for index, choice in sorted(self._choices.items()):
            message = choice["message"]
            calls = self._tool_calls.get(index)
            if calls is not None and isinstance(message, dict):
                message = {**message, "tool_calls": [calls[i] for i in sorted(calls)]}
            choices.append({**choice, "message": message})
        return {**self._top, "object": "chat.completion", "choices": choices}

    def _choice(self, part: JsonObject) -> None:
        index = _index(part)
        if index not in self._choices:
            message: JsonObject = {"role": "assistant"}
            self._choices[index] = {"index": index, "message": message}
        choice = self._choices[index]
        for name, value in part.items():
            if name == "delta":
                self._delta(index, value)
            elif name == "logprobs":
                merge(choice, name, value)
            elif name not in ("index", "message"):
                self._replace(choice, name, value)

    def _delta(self, index: int, delta: Json) -> None:
        message = self._choices[index]["message"]
        if delta is None:
            return
        if not isinstance(delta, dict) or not isinstance(message, dict):
            raise MalformedCompletion("delta is not an object")
        for name, value in delta.items():
            if name == "tool_calls" and value:
                calls = self._tool_calls.setdefault(index, {})
                for call in objects(value):
                    _continue_call(calls.setdefault(_index(call), {}), call)
            elif name == "role":
                if value:
                    message["role"] = value
            else:
                merge(message, name, value)

    @staticmethod
    def _replace(target: JsonObject, name: str, value: Json) -> None:
        if value is not None or name not in target:
            target[name] = value


def merge(target: JsonObject, name: str, value: Json) -> None:
    """Continue `target[name]` with `value` by the rule of its JSON type.

    List items that are objects with an `index` continue the item of that index
    which an earlier part brought.
    """
    known = target.get(name)
    if known is None:
        target[name] = value
    elif value is None or (name in TAKEN_ONCE and known):
        return
    elif isinstance(known, str) and isinstance(value, str):
        target[name] = known + value
    elif isinstance(known, dict) and isinstance(value, dict):
        merged = dict(known)
        for key, item in value.items():
            merge(merged, key, item)
        target[name] = merged
    elif isinstance(known, list) and isinstance(value, list):
        target[name] = _continue_list(known, value)
    else:
        target[name] = value


def parse_object(data: str | bytes) -> JsonObject:
    """Return the JSON object in `data`.

    Raises: `MalformedCompletion`.
    """
    try:
        parsed: Json = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise MalformedCompletion("not JSON") from error
    if not isinstance(parsed, dict):
        raise MalformedCompletion("not an object")
    return parsed


def check_completion(completion: JsonObject) -> None:
    """Check that `completion` has the shape that can be stored and replayed.

    Raises: `MalformedCompletion` naming the part.
    """
    if completion.get("object") != "chat.completion":
        raise MalformedCompletion("object is not chat.completion")
    if completion.get("error") is not None:
        raise MalformedCompletion("error")
    choices = objects(completion.get("choices"))
    if not choices:
        raise MalformedCompletion("no choices")
    if sorted(_index(choice) for choice in choices) != list(range(len(choices))):
        raise MalformedCompletion("choices are not numbered from 0")
    for choice in choices:
        message = choice.get("message")
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise MalformedCompletion("message is not an object with a role")
        if not isinstance(choice.get("finish_reason"), str):
            raise MalformedCompletion("finish_reason is missing")
        if message.get("tool_calls") is not None:
            objects(message["tool_calls"])


def _continue_call(call: JsonObject, part: JsonObject) -> None:
    for name, value in part.items():
        if name != "index":
            merge(call, name, value)


def _continue_list(known: list[Json], more: list[Json]) -> list[Json]:
    items = list(known)
    places = {
        item["index"]: place
        for place, item in enumerate(known)
        if isinstance(item, dict) and type(item.get("index")) is int
    }
    for item in more:
        place = places.get(item.get("index")) if isinstance(item, dict) else None
        if place is None:
            items.append(item)
        else:
            items[place] = _merged_object(items[place], item)
    return items


def _merged_object(known: Json, more: Json) -> Json:
    holder: JsonObject = {"item": known}
    if isinstance(more, dict):
        rest: JsonObject = {k: v for k, v in more.items() if k != "index"}
        merge(holder, "item", rest)
    return holder["item"]


def objects(value: Json) -> list[JsonObject]:
    """Return `value` as a list of objects; a lone object counts as a list of one.

    Raises: `MalformedCompletion`.
    """
    items = value if isinstance(value, list) else [value]
    objects = [item for item in items if isinstance(item, dict)]
    if len(objects) != len(items):
        raise MalformedCompletion("expected a list of objects")
    return objects


def _index(part: JsonObject) -> int:
    index = part.get("index", 0)
    if type(index) is not int or index < 0:
        raise MalformedCompletion("index is not a whole number")
    return index
