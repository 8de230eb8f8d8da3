"""Events as flat, printable values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

from cachemind.events import Envelope, Reads
from cachemind.types import Lsn

HIDDEN: Final = frozenset({"prompt", "response", "embedding", "parameters"})
"""Fields that hold what people wrote or were told; shown only on request."""

_SHORT_HEX: Final = 16
_WHOLE: Final = frozenset({"exact_key", "matched_key", "value"})
"""Keys are what other commands take, so they are printed whole; `value` may be one."""


def describe(envelope: Envelope, lsn: Lsn, *, bodies: bool) -> dict[str, Any]:
    """Return one event as JSON-ready values; bytes become hex."""
    shown = _plain(envelope.body, bodies=bodies)
    return {
        "lsn": str(lsn),
        "kind": type(envelope.body).__name__,
        "namespace": envelope.namespace,
        "occurred_at": moment(envelope.occurred_at_ns),
        "event_id": envelope.event_id.hex(),
        "trace_id": envelope.trace_id.hex(),
        "principal": envelope.principal,
        "writer": envelope.writer,
        "writer_seq": envelope.writer_seq,
        "timeline": envelope.timeline,
        "body": shown,
    }


def line(shown: Mapping[str, Any]) -> str:
    """Return one described event as a line for people."""
    body = shown["body"]
    if shown["kind"] == Reads.__name__:
        words = ", ".join(_read(item) for item in body["items"])
    else:
        words = " ".join(
            f"{name}={value if name in _WHOLE else _short(value)}"
            for name, value in body.items()
            if value not in (None, "", [], {}) and not isinstance(value, dict)
        )
    return (
        f"{shown['lsn']:<10} {shown['occurred_at']} {shown['namespace']} "
        f"{shown['kind']:<13} {words}"
    )


def moment(at_ns: int) -> str:
    """Return event time in UTC with milliseconds."""
    at = datetime.fromtimestamp(at_ns / 1e9, UTC)
    return at.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _read(item: Mapping[str, Any]) -> str:
    similarity = item["similarity"]
    near = "" if similarity is None else f" {similarity:.3f}"
    reason = f" ({item['reason']})" if item["reason"] else ""
    return f"{item['outcome']}{near} key={item['exact_key']}{reason}"


def _short(value: object) -> str:
    text = str(value)
    if len(text) > _SHORT_HEX and all(c in "0123456789abcdef" for c in text):
        return text[:_SHORT_HEX]
    return text


def _plain(value: object, *, bodies: bool) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Lsn):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(item, bodies=bodies) for item in value]
    if is_dataclass(value):
        return {
            item.name: _field(item.name, getattr(value, item.name), bodies=bodies)
            for item in fields(value)
            if bodies or item.name not in HIDDEN
        }
    return value


def _field(name: str, value: object, *, bodies: bool) -> Any:
    if name == "response" and isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return _plain(value, bodies=bodies)
