"""The codec: which schema a record has, and what its bytes say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import BytesIO
from typing import Any, Final

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.read import SchemaResolutionError

from cachemind.codec import from_avro, to_avro
from cachemind.codec.framing import (
    CONFLUENT_BYTES,
    SINGLE_OBJECT_BYTES,
    confluent_header,
    schema_identity,
    single_object_header,
)
from cachemind.errors import InvalidEvent, UndecodableRecord, UnknownSchema
from cachemind.events import Envelope
from cachemind.ports import SchemaIds
from cachemind_schemas.loader import Schema, current, parse, released

_CORRUPT: Final = (EOFError, IndexError, OverflowError, TypeError, ValueError)
_UNWRITABLE: Final = (AttributeError, OverflowError, TypeError, ValueError)


class Codec:
    """Encodes with this build's schema; decodes every schema it has released.

    Without `ids`, records carry the schema's fingerprint (single-object encoding);
    with it, the registry's id (Confluent framing). Either kind is read. A writer's
    schema that this build has never released is not resolved but refused: what is
    new in it may have a meaning that the fold must not lose, so readers are
    upgraded before writers.

    Safe to use from many threads.
    """

    def __init__(
        self,
        ids: SchemaIds | None = None,
        *,
        schema: Schema | None = None,
        older: Sequence[Schema] | None = None,
    ) -> None:
        """`schema` and `older` default to the current and the released schemas."""
        self._ids = ids
        self._schema = schema or current()
        self._parsed = _parsed(self._schema)
        self._header = b"" if ids else single_object_header(self._schema.crc64)
        known = released() if older is None else older
        self._writers = {one.crc64: _parsed(one) for one in known}
        self._writers[self._schema.crc64] = self._parsed
        self._by_id: dict[int, Any] = {}

    def prepare(self) -> None:
        """Learn the registry's id of this build's schema, so `encode` never waits.

        Raises: `LogUnavailable`, `LogRejected` (the registry finds it incompatible).
        """
        if self._ids and not self._header:
            self._header = confluent_header(self._ids.id_for(self._schema.text))

    def encode(self, event: Envelope) -> bytes:
        """Return the record's bytes, header included.

        Raises: `InvalidEvent` where a field's value does not fit its Avro type;
        with a registry, until it was reached once, what `prepare` raises.
        """
        if not self._header:
            self.prepare()
        out = BytesIO()
        out.write(self._header)
        try:
            schemaless_writer(out, self._parsed, to_avro.envelope(event))
        except _UNWRITABLE as error:
            # The library's message may quote the value: name only its kind.
            kind = type(event.body).__name__
            problem = f"does not fit the schema ({type(error).__name__})"
            raise InvalidEvent(kind, problem) from None
        return out.getvalue()

    def decode(self, record: bytes) -> Envelope:
        """Return the event in `record`.

        Raises: `UndecodableRecord` where the bytes are no event, or not all of them
        are; `UnknownSchema` for a schema, event type or enum symbol that this build
        lacks; `LogUnavailable` where the registry must be asked and is away.
        """
        identity = schema_identity(record)
        if isinstance(identity, int):
            writer = self._writer_by_id(identity)
            return self._event(record, CONFLUENT_BYTES, writer)
        writer = self._writers.get(identity)
        if writer is None:
            raise UnknownSchema(f"schema fingerprint {identity[::-1].hex()}")
        return self._event(record, SINGLE_OBJECT_BYTES, writer)

    def _event(self, record: bytes, start: int, writer: Any) -> Envelope:
        source = BytesIO(record)
        source.seek(start)
        reader = None if writer is self._parsed else self._parsed
        try:
            values = schemaless_reader(
                source,
                writer,
                reader,
                return_record_name=True,
                return_record_name_override=True,
            )
        except SchemaResolutionError:
            raise UnknownSchema("an event type that is not in the schema") from None
        except _CORRUPT as error:
            # Not chained: the library's error may quote what it read.
            raise UndecodableRecord(_reason(error)) from None
        surplus = len(record) - source.tell()
        if surplus:
            raise UndecodableRecord(f"{surplus} bytes follow the event")
        try:
            return from_avro.envelope(values)  # type: ignore[arg-type] # a record
        except InvalidEvent as error:
            raise UndecodableRecord(f"invalid {error.field}") from None

    def _writer_by_id(self, schema_id: int) -> Any:
        if self._ids is None:
            raise UnknownSchema(
                f"Confluent schema id {schema_id}, and no schema registry is set"
            )
        writer = self._by_id.get(schema_id)
        if writer is None:
            writer = self._known(schema_id, self._ids.schema_for(schema_id))
            self._by_id[schema_id] = writer
        return writer

    def _known(self, schema_id: int, text: str) -> Any:
        try:
            found = parse("registry", text)
        except ValueError as error:
            raise UnknownSchema(f"schema id {schema_id}, not Avro") from error
        writer = self._writers.get(found.crc64)
        if writer is None:
            raise UnknownSchema(
                f"schema id {schema_id}, fingerprint {found.crc64[::-1].hex()}"
            )
        return writer


def _parsed(schema: Schema) -> Any:
    return parse_schema(json.loads(schema.text), named_schemas={})


def _reason(error: Exception) -> str:
    match error:
        case EOFError():
            return "cut, or a length reaches past the end"
        case UnicodeDecodeError():
            return "text is not UTF-8"
        case IndexError():
            return "union branch or enum symbol out of range"
        case _:
            return f"not the Avro encoding of an event ({type(error).__name__})"
