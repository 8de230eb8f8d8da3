"""Full-transitive compatibility of the current schema with every released one.

Needs the `dev` extra: the judge is Apache avro's own checker. It is blind to three
things, which are checked here besides:

* a symbol that vanished from an enum: readers would take the enum's default
  symbol, and stop on logs that an earlier build could fold;
* another Avro namespace: it compares names without it, Java compares full names;
* a new kind of event: it calls a new union branch incompatible for old readers.
  That is meant (they must stop at it), so a branch that the older schema lacks is
  left out when the older one reads the newer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from avro.compatibility import (
    ReaderWriterCompatibilityChecker,
    SchemaCompatibilityType,
)
from avro.schema import Schema as ApacheSchema
from avro.schema import parse as apache_parse

from cachemind_schemas.loader import Schema

_NAMED: Final = ("record", "enum", "fixed")


def problems(newer: Schema, released: Iterable[Schema]) -> list[str]:
    """Return a line for each way in which `newer` breaks with a released schema.

    Empty: each may read what the other wrote, save for new kinds of events.
    """
    return [line for older in released for line in _problems(newer, older)]


def _problems(newer: Schema, older: Schema) -> Iterator[str]:
    shared = _without_new_kinds(newer, older)
    for reader, writer, label in (
        (newer.text, older.text, f"cannot read what {older.version} wrote"),
        (older.text, shared, f"cannot be read by {older.version}"),
    ):
        for problem in _apache(apache_parse(reader), apache_parse(writer)):
            yield f"{label}: {problem}"
    before, after = _named(older), _named(newer)
    for name in sorted(before.keys() - after.keys()):
        yield f"{name} of {older.version} is gone"
    for name in sorted(before.keys() & after.keys()):
        for symbol in _lost_symbols(before[name], after[name]):
            yield f"{name} lost the symbol {symbol} of {older.version}"


def _apache(reader: ApacheSchema, writer: ApacheSchema) -> Iterator[str]:
    checker = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call] # avro leaves its __init__ unannotated
    found = checker.get_compatibility(reader, writer)
    if found.compatibility is not SchemaCompatibilityType.compatible:
        kinds = ", ".join(kind.name for kind in found.incompatibilities)
        yield f"{kinds} at {', '.join(sorted(found.locations))}"


def _lost_symbols(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    kept = set(after.get("symbols", ()))
    return [one for one in before.get("symbols", ()) if one not in kept]


def _without_new_kinds(newer: Schema, older: Schema) -> str:
    known = set(_named(older))
    root = json.loads(newer.canonical)
    text: dict[str, Any] = json.loads(newer.text)
    for field, plain in zip(text["fields"], root["fields"], strict=True):
        if field["name"] == "body":
            field["type"] = [
                branch
                for branch, bare in zip(field["type"], plain["type"], strict=True)
                if _full_name(bare) in known
            ]
    return json.dumps(text)


def _full_name(branch: Any) -> str:
    return str(branch["name"] if isinstance(branch, dict) else branch)


def _named(schema: Schema) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}

    def visit(node: Any) -> None:
        if isinstance(node, dict):
            if node.get("type") in _NAMED:
                found[node["name"]] = node
            for part in node.values():
                visit(part)
        elif isinstance(node, list):
            for part in node:
                visit(part)

    visit(json.loads(schema.canonical))
    return found
