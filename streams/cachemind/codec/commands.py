"""Commands and replies as bytes: Avro single-object encoding."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from cachemind.codec.single_object import SingleObject
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


def encode_command(command: Command) -> bytes:
    """Return the command's record."""
    return _COMMANDS.encode(
        {
            "request_id": command.request_id,
            "namespace": command.namespace,
            "body": _plain(command.body),
        }
    )


def decode_command(record: bytes) -> Command:
    """Return the command in `record`.

    Raises: `UndecodableRecord`; `UnknownSchema` for a schema that this build lacks.
    """
    found = _COMMANDS.decode(record)
    try:
        return Command(
            request_id=EventId(found["request_id"]),
            namespace=Namespace(found["namespace"]),
            body=Rollback(**found["body"]),
        )
    except InvalidEvent as error:
        raise UndecodableRecord(f"invalid {error.field}") from error


def encode_reply(reply: Reply) -> bytes:
    """Return the reply's record."""
    lsn, body = reply.lsn, reply.body
    place = None
    if lsn is not None:
        place = {"partition": lsn.partition, "offset": lsn.offset}
    name = f"cachemind.v1.{type(body).__name__}"
    return _REPLIES.encode(
        {
            "request_id": reply.request_id,
            "namespace": reply.namespace,
            "trace_id": reply.trace_id,
            "lsn": place,
            "body": (name, _plain(body)),
        }
    )


def decode_reply(record: bytes) -> Reply:
    """Return the reply in `record`.

    Raises: `UndecodableRecord`; `UnknownSchema` for a schema, or a code, that this
    build lacks.
    """
    found = _REPLIES.decode(record)
    place = found["lsn"]
    return Reply(
        request_id=EventId(found["request_id"]),
        namespace=Namespace(found["namespace"]),
        trace_id=TraceId(found["trace_id"]),
        lsn=None
        if place is None
        else Lsn(Partition(place["partition"]), Offset(place["offset"])),
        body=_answer(*found["body"]),
    )


def _answer(name: str, found: Any) -> Problem | RollbackDone:
    if name.endswith(".Problem"):
        _require_known("code", found["code"])
        return Problem(**{**found, "code": ProblemCode(found["code"])})
    _require_known("status", found["status"])
    return RollbackDone(**{**found, "status": RollbackState(found["status"])})


def _require_known(field: str, symbol: str) -> None:
    if symbol == _UNRECOGNISED:
        raise UnknownSchema(f"a {field} of a newer build")


def _plain(value: Rollback | Problem | RollbackDone) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in fields(value)}
