"""Commands and replies as bytes: Avro single-object encoding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from typing import Any, Final

from cachemind.codec.single_object import Registered, SingleObject
from cachemind.core.cache_commands import (
    Answered,
    CacheAnswer,
    CacheCommand,
    Complete,
    FindReceipt,
    Invalidate,
    Logged,
    Lookup,
    Put,
    PutDone,
    ReceiptFound,
)
from cachemind.core.commands import (
    Command,
    Problem,
    ProblemCode,
    Reply,
    Rollback,
    RollbackDone,
    RollbackState,
)
from cachemind.errors import InvalidEvent, UndecodableRecord, UnknownSchema
from cachemind.events import Feedback, Outcome, SelectorKind, Verdict
from cachemind.types import (
    EventId,
    Lsn,
    Namespace,
    Offset,
    Partition,
    TraceId,
)

_COMMANDS: Final = SingleObject("commands", "command")
_REPLIES: Final = SingleObject("replies", "reply")
_UNRECOGNISED: Final = "unrecognised"
_KINDS: Final = {
    kind.__name__: kind
    for kind in (
        Rollback,
        Lookup,
        Complete,
        Put,
        Invalidate,
        Feedback,
        FindReceipt,
    )
}
_ANSWERS: Final = {
    kind.__name__: kind
    for kind in (Problem, RollbackDone, Answered, PutDone, Logged, ReceiptFound)
}
_SYMBOLS: Final[Mapping[type, tuple[str, type[StrEnum]]]] = {
    Problem: ("code", ProblemCode),
    RollbackDone: ("status", RollbackState),
    Answered: ("outcome", Outcome),
    Invalidate: ("kind", SelectorKind),
    Feedback: ("verdict", Verdict),
}
"""The field that is an enum, of those that have one."""


def encode_command(command: Command) -> bytes:
    """Return the command's record."""
    return _COMMANDS.encode(
        {
            "request_id": command.request_id,
            "namespace": command.namespace,
            "body": _branch(command.body),
        }
    )


def command_schema() -> str:
    """Return the schema that commands are written with."""
    return _COMMANDS.text


def reply_schema() -> str:
    """Return the schema that replies are written with."""
    return _REPLIES.text


def decode_command(record: bytes, registered: Registered | None = None) -> Command:
    """Return the command in `record`; with `registered` also in Confluent's framing.

    Raises: `UndecodableRecord`; `UnknownSchema` for a schema, or a symbol, that this
    build lacks; what `registered` raises.
    """
    found = _COMMANDS.decode(record, registered)
    body = found["body"]
    # Named only where the writer's schema has several; 0.1.0 had this one alone.
    name, body = (Rollback.__name__, body) if isinstance(body, dict) else body
    kind: Any = _KINDS[_last(name)]
    try:
        return Command(
            request_id=EventId(found["request_id"]),
            namespace=Namespace(found["namespace"]),
            body=kind(**_parsed(kind, body)),
        )
    except InvalidEvent as error:
        raise UndecodableRecord(f"invalid {error.field}") from error


def encode_reply(reply: Reply) -> bytes:
    """Return the reply's record."""
    lsn, place = reply.lsn, None
    if lsn is not None:
        place = {"partition": lsn.partition, "offset": lsn.offset}
    return _REPLIES.encode(
        {
            "request_id": reply.request_id,
            "namespace": reply.namespace,
            "trace_id": reply.trace_id,
            "lsn": place,
            "body": _branch(reply.body),
            "version": reply.version,
        }
    )


def decode_reply(record: bytes) -> Reply:
    """Return the reply in `record`.

    Raises: `UndecodableRecord`; `UnknownSchema` for a schema, or a code, that this
    build lacks.
    """
    found = _REPLIES.decode(record)
    place = found["lsn"]
    name, body = found["body"]
    kind: Any = _ANSWERS[_last(name)]
    return Reply(
        request_id=EventId(found["request_id"]),
        namespace=Namespace(found["namespace"]),
        trace_id=TraceId(found["trace_id"]),
        lsn=None
        if place is None
        else Lsn(Partition(place["partition"]), Offset(place["offset"])),
        body=kind(**_parsed(kind, body)),
        version=found["version"],
    )


def _parsed(kind: type, found: dict[str, Any]) -> dict[str, Any]:
    """Return a record's fields as ours: an enum for its symbol, tuples for arrays."""
    if kind in _SYMBOLS:
        name, symbols = _SYMBOLS[kind]
        if found[name] == _UNRECOGNISED:
            raise UnknownSchema(f"a {name} of a newer build")
        found = {**found, name: symbols(found[name])}
    return {
        name: tuple(each) if isinstance(each, list) else each
        for name, each in found.items()
    }


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _branch(
    value: Rollback | CacheCommand | Problem | RollbackDone | CacheAnswer,
) -> tuple[str, dict[str, Any]]:
    plain = {each.name: getattr(value, each.name) for each in fields(value)}
    return f"cachemind.v1.{type(value).__name__}", plain
