"""Dead letters as people and programs read them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from cachemind.codec.framing import schema_identity
from cachemind.core.commands import (
    CORRELATION_ID,
    DEADLINE,
    REPLY_TO,
    TRACEPARENT,
    Command,
)
from cachemind.core.dead_letter import REPLAY_OF, Letter, Replay
from cachemind.errors import UndecodableRecord
from cachemind.events import Envelope
from cachemind.types import Lsn
from cachemind_services.cli.describe import describe, moment

if TYPE_CHECKING:
    from cachemind_services.bootstrap.dlq import Buried

ADDRESSED: Final = frozenset(
    {REPLY_TO, CORRELATION_ID, TRACEPARENT, REPLAY_OF, DEADLINE}
)
"""Headers that say where an answer goes and when. Others are shown on request only:
a client may put a credential there."""

_NS_PER_MS: Final = 1_000_000


def row(found: Buried) -> dict[str, Any]:
    """Return one letter as JSON-ready values, without anything of its value."""
    letter = found.letter
    if letter is None:
        return {"id": str(found.at), "problem": found.problem}
    return {
        "id": str(found.at),
        "topic": letter.source.topic,
        "lsn": str(letter.source.lsn),
        "reason": letter.reason,
        "detail": letter.detail,
        "written_at": _at(letter.timestamp_ms),
        "key": None if letter.key is None else text(letter.key),
        "value_bytes": None if letter.value is None else len(letter.value),
        "replayed_by": None if found.replayed is None else found.replayed.by,
    }


def line(shown: Mapping[str, Any]) -> str:
    """Return a row as one line for people."""
    if "topic" not in shown:
        return printable(f"{shown['id']:<8} not a dead letter: {shown['problem']}")
    size = "null" if shown["value_bytes"] is None else f"{shown['value_bytes']} B"
    by = shown["replayed_by"]
    replayed = "" if by is None else f"  [replayed by {by}]"
    return printable(
        f"{shown['id']:<8} {shown['written_at']}  {shown['topic']} {shown['lsn']}  "
        f"{shown['reason']}  {size}  {shown['detail']}{replayed}"
    )


def whole(
    found: Buried, content: Envelope | Command | str, *, bodies: bool
) -> dict[str, Any]:
    """Return all of one letter that may be shown.

    `content` is what its value says, or why nobody can tell. Headers, and what
    people wrote or were told, only with `bodies`.
    """
    shown, letter = row(found), found.letter
    if letter is None:
        return shown
    value = letter.value or b""
    shown |= {
        "sha256": hashlib.sha256(value).hexdigest(),
        "schema": framing(value),
        "headers": [_header(*each, bodies=bodies) for each in letter.headers],
        "content": _content(letter, content, bodies=bodies),
    }
    if bodies:
        shown["value_hex"] = value.hex()
    return shown


def page(shown: Mapping[str, Any]) -> str:
    """Return what `whole` gives as lines for people."""
    lines = []
    for name, value in shown.items():
        told = value if isinstance(value, str) else json.dumps(value)
        lines.append(printable(f"{name:<12} {told}"))
    return "\n".join(lines)


def framing(value: bytes) -> str:
    """Return which schema the value's first bytes name, or that they name none."""
    try:
        identity = schema_identity(value)
    except UndecodableRecord as error:
        return error.reason
    if isinstance(identity, int):
        return f"Confluent, schema id {identity}"
    return f"single-object, fingerprint {identity[::-1].hex()}"


def text(raw: bytes) -> str:
    """Return bytes as text; what is not UTF-8 as escapes."""
    return raw.decode("utf-8", "backslashreplace")


def printable(line: str) -> str:
    """Return `line` without anything that a terminal obeys: others wrote it."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode()
        for each in line
    )


def before(found: Buried, note: Replay) -> str:
    """Return that a letter was put back before."""
    return printable(f"{found.at} was replayed before, by {note.by}")


def _header(name: str, value: bytes, *, bodies: bool) -> dict[str, Any]:
    if bodies or name in ADDRESSED:
        return {"name": name, "value": text(value)}
    return {"name": name, "bytes": len(value)}


def _content(
    letter: Letter, content: Envelope | Command | str, *, bodies: bool
) -> dict[str, Any]:
    if isinstance(content, str):
        return {"problem": content}
    if isinstance(content, Envelope):
        return describe(content, letter.source.lsn, bodies=bodies)
    shown: dict[str, Any] = {
        "request_id": content.request_id.hex(),
        "namespace": content.namespace,
        "kind": type(content.body).__name__,
    }
    if bodies:
        shown["body"] = _plain(content.body)
    return shown


def _plain(value: object) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Lsn):
        return str(value)
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    return value


def _at(timestamp_ms: int) -> str:
    return "unknown" if timestamp_ms < 0 else moment(timestamp_ms * _NS_PER_MS)
