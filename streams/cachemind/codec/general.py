"""Any event by walking the schema: fastavro's writer and reader."""

from __future__ import annotations

import json
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.read import SchemaResolutionError

from cachemind.codec import from_avro, to_avro
from cachemind.codec.walk import Walk, compiled
from cachemind.errors import InvalidEvent, UndecodableRecord, UnknownSchema
from cachemind.events import Envelope
from cachemind_schemas.loader import Schema


@dataclass(frozen=True, slots=True, eq=False)
class Parsed:
    """A schema as `write` and `read` take it."""

    avro: Any
    walk: Walk


_UNWRITABLE: Final = (AttributeError, KeyError, OverflowError, TypeError, ValueError)


def parsed(schema: Schema) -> Parsed:
    """Return what `write` and `read` take.

    Raises: `ValueError` where the schema has a type that events do not use.
    """
    return Parsed(
        avro=parse_schema(json.loads(schema.text), named_schemas={}),
        walk=compiled(json.loads(schema.canonical)),
    )


def write(header: bytes, event: Envelope, schema: Parsed) -> bytes:
    """Return `header` and the event's Avro encoding.

    Raises: `InvalidEvent` where a field's value does not fit its Avro type.
    """
    out = BytesIO()
    out.write(header)
    try:
        schemaless_writer(out, schema.avro, to_avro.envelope(event))
    except _UNWRITABLE as error:
        # The library's message may quote the value: name only its kind.
        kind = type(event.body).__name__
        problem = f"does not fit the schema ({type(error).__name__})"
        raise InvalidEvent(kind, problem) from None
    return out.getvalue()


def read(
    record: bytes, start: int, writer: Parsed, reader: Parsed | None = None
) -> Envelope:
    """Return the event that `record` holds from `start` to its end.

    `reader` is given where it is not the writer's schema.
    Raises: `UndecodableRecord`, `UnknownSchema`.
    """
    surplus = len(record) - writer.walk(record, start)
    if surplus:
        raise UndecodableRecord(f"{surplus} bytes follow the event")
    source = BytesIO(record)
    source.seek(start)
    try:
        values = schemaless_reader(
            source,
            writer.avro,
            None if reader is None else reader.avro,
            return_record_name=True,
            return_record_name_override=True,
        )
    except SchemaResolutionError:
        raise UnknownSchema("an event type that is not in the schema") from None
    except UnicodeDecodeError:
        # Not chained: the library's error quotes what it read.
        raise UndecodableRecord("text is not UTF-8") from None
    try:
        return from_avro.envelope(values)  # type: ignore[arg-type] # a record
    except InvalidEvent as error:
        raise UndecodableRecord(f"invalid {error.field}") from None
