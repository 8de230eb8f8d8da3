"""Whole records in Avro single-object encoding, each kind with schemas of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, cached_property
from io import BytesIO
from typing import Any, Final

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.read import SchemaResolutionError

from cachemind.codec.framing import (
    CONFLUENT_BYTES,
    SINGLE_OBJECT_BYTES,
    schema_identity,
    single_object_header,
)
from cachemind.errors import UndecodableRecord, UnknownSchema
from cachemind_schemas.loader import Schema, current_of, released_of

_CUT: Final = (EOFError, IndexError, MemoryError, TypeError, ValueError, OverflowError)


Registered = Callable[[int], bytes]
"""Returns the fingerprint (CRC-64-AVRO) of the schema with a registry's id."""


class SingleObject:
    """Encodes and decodes one family of records, `what` in messages."""

    def __init__(self, family: str, what: str) -> None:
        self._family = family
        self._what = what

    def encode(self, value: dict[str, Any]) -> bytes:
        """Return the record of `value`."""
        out = BytesIO()
        out.write(single_object_header(self._current.crc64))
        schemaless_writer(out, _parsed(self._current), value)
        return out.getvalue()

    def decode(self, record: bytes, registered: Registered | None = None) -> Any:
        """Return the value in `record`, as this build's schema has it.

        A record in a union with other records comes as (full name, fields). With
        `registered` Confluent's framing is read as well.
        Raises: `UndecodableRecord`; `UnknownSchema` for one that this build lacks;
        what `registered` raises.
        """
        writer, start = self._writer(record, registered)
        source = BytesIO(record)
        source.seek(start)
        try:
            found = schemaless_reader(
                source,
                _parsed(writer),
                _parsed(self._current),
                return_record_name=True,
                return_record_name_override=True,
            )
        except SchemaResolutionError as error:
            raise UnknownSchema(f"a {self._what} of another shape") from error
        except _CUT as error:
            problem = f"no {self._what} ({type(error).__name__})"
            raise UndecodableRecord(problem) from error
        if source.tell() != len(record):
            raise UndecodableRecord(f"bytes follow the {self._what}")
        return found

    @cached_property
    def _current(self) -> Schema:
        return current_of(self._family)

    @property
    def text(self) -> str:
        """Return this build's schema."""
        return self._current.text

    def _writer(
        self, record: bytes, registered: Registered | None
    ) -> tuple[Schema, int]:
        identity, start = schema_identity(record), SINGLE_OBJECT_BYTES
        if isinstance(identity, int) and registered is not None:
            identity, start = registered(identity), CONFLUENT_BYTES
        for schema in (self._current, *released_of(self._family)):
            if schema.crc64 == identity:
                return schema, start
        shown = identity if isinstance(identity, int) else identity[::-1].hex()
        raise UnknownSchema(f"{self._what} schema {shown}")


@cache
def _parsed(schema: Schema) -> Any:
    return parse_schema(json.loads(schema.text), named_schemas={})
