"""The part of JSON Patch (RFC 6902) that tells two documents apart.

`diff` uses `add`, `remove` and `replace`; an array that differs is replaced whole.
`patched` also takes `test`. Values are JSON's: None, bool, int, float, str, list,
dict with text keys. Unlike in Python, `1` and `true` are different values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from cachemind.errors import CacheError

Json: TypeAlias = "bool | int | float | str | list[Json] | Mapping[str, Json] | None"
Operation: TypeAlias = "Mapping[str, Json]"

_NOTHING: Final = object()


class PatchRefused(CacheError):
    """A patch does not fit the document; `path` is where."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path or 'the document'}: {problem}")
        self.path = path
        self.problem = problem


def diff(before: Json, after: Json) -> tuple[Operation, ...]:
    """Return the patch that makes `after` of `before`; empty where they are equal."""
    return tuple(_diff("", before, after))


def patched(document: Json, patch: Sequence[Operation]) -> Json:
    """Return `document` after `patch`; `document` itself is left alone.

    Raises: `PatchRefused`, whatever the patch is.
    """
    for operation in patch:
        document = _applied(document, operation)
    return document


def same(one: Json, other: Json) -> bool:
    """Return whether two documents are equal as JSON."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(
            same(value, other[name]) for name, value in one.items()
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def _diff(path: str, before: Json, after: Json) -> Iterator[Operation]:
    if same(before, after):
        return
    if not (isinstance(before, Mapping) and isinstance(after, Mapping)):
        yield {"op": "replace", "path": path, "value": after}
        return
    for name in sorted(before.keys() - after.keys()):
        yield {"op": "remove", "path": f"{path}/{_escaped(name)}"}
    for name in sorted(after):
        at = f"{path}/{_escaped(name)}"
        if name in before:
            yield from _diff(at, before[name], after[name])
        else:
            yield {"op": "add", "path": at, "value": after[name]}


def _applied(document: Json, operation: Operation) -> Json:
    verb, path = operation.get("op"), operation.get("path")
    if not isinstance(path, str) or (path and not path.startswith("/")):
        raise PatchRefused("", "an operation has no path")
    value = operation.get("value", _NOTHING)
    if (value is _NOTHING) != (verb == "remove"):
        raise PatchRefused(path, "only `remove` is without a value")
    names = [_unescaped(path, part) for part in path.split("/")[1:]]
    return _at(document, names, path, verb, value)


def _at(
    found: Json, names: Sequence[str], path: str, verb: Json, value: object
) -> Json:
    """Return `found` with the operation done at `names` inside of it."""
    if not names:
        return _replaced(found, path, verb, value)
    if not isinstance(found, Mapping):
        raise PatchRefused(path, "leads into something that is not an object")
    name, rest = names[0], names[1:]
    if not rest and verb == "add":
        return {**found, name: value}  # type: ignore[dict-item]  # is Json, or missing
    if name not in found:
        raise PatchRefused(path, "is not there")
    if not rest and verb == "remove":
        return {key: kept for key, kept in found.items() if key != name}
    return {**found, name: _at(found[name], rest, path, verb, value)}


def _replaced(found: Json, path: str, verb: Json, value: object) -> Json:
    match verb:
        case "add" | "replace":
            return value  # type: ignore[return-value]  # checked to be there
        case "test":
            if not same(found, value):  # type: ignore[arg-type]  # as above
                raise PatchRefused(path, "is not what the patch expects")
            return found
        case _:
            raise PatchRefused(path, "the operation is not one that is known here")


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _unescaped(path: str, part: str) -> str:
    if "~" in part.replace("~0", "").replace("~1", ""):
        raise PatchRefused(path, "has a tilde that escapes nothing")
    return part.replace("~1", "/").replace("~0", "~")
