"""Entries for other programs: JSON lines, or an Avro object container file.

Either is written entry by entry, so a state need not fit in memory.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import IO, Any

import fastavro

from cachemind.core.state import Entry
from cachemind.types import Namespace
from cachemind_schemas.loader import exported_entry

NamedEntry = tuple[Namespace, Entry]
_RAW = frozenset({"embedding", "response"})


def plain(namespace: Namespace, entry: Entry) -> dict[str, Any]:
    """Return the fields of `cachemind.export.v1.ExportedEntry`."""
    named = {item.name: getattr(entry, item.name) for item in fields(Entry)}
    return {"namespace": namespace} | {
        name: value if name in _RAW else _hexed(value) for name, value in named.items()
    }


def json_value(namespace: Namespace, entry: Entry) -> dict[str, Any]:
    """Return the same as JSON takes it: the response parsed, the vector as base64."""
    found = plain(namespace, entry)
    vector = found["embedding"]
    return found | {
        "embedding": None if vector is None else base64.b64encode(vector).decode(),
        "response": _parsed(found["response"]),
    }


def write_json_lines(out: IO[bytes], entries: Iterable[NamedEntry]) -> int:
    """Write one line of JSON an entry; return how many."""
    count = 0
    for namespace, entry in entries:
        line = json.dumps(json_value(namespace, entry), ensure_ascii=False)
        out.write(line.encode() + b"\n")
        count += 1
    return count


def write_avro(out: IO[bytes], entries: Iterable[NamedEntry]) -> int:
    """Write an object container file, deflated; return the number of entries.

    Source: Avro 1.12 specification, "Object Container Files".
    """
    count = 0

    def counted() -> Iterator[dict[str, Any]]:
        nonlocal count
        for namespace, entry in entries:
            count += 1
            yield plain(namespace, entry)

    schema: Any = json.loads(exported_entry().text)
    fastavro.writer(out, schema, counted(), codec="deflate")
    return count


def _hexed(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return [_hexed(one) for one in value]
    return value


def _parsed(response: bytes) -> Any:
    """Return the completion; text that is not JSON (a test's) stays text."""
    try:
        return json.loads(response)
    except ValueError:
        return response.decode("utf-8", "replace")
