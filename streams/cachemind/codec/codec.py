"""The codec: which schema a record has, and what its bytes say."""

from __future__ import annotations

from collections.abc import Sequence

from cachemind.codec import fast_reader, fast_writer, general
from cachemind.codec.framing import (
    CONFLUENT_BYTES,
    SINGLE_OBJECT_BYTES,
    confluent_header,
    schema_identity,
    single_object_header,
)
from cachemind.codec.general import Parsed
from cachemind.errors import UnknownSchema
from cachemind.events import Envelope
from cachemind.ports import SchemaIds
from cachemind_schemas.loader import Schema, current, parse, released


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
        self._parsed = general.parsed(self._schema)
        self._fast = self._schema.crc64 == fast_writer.SCHEMA
        self._header = (
            b"" if ids is not None else single_object_header(self._schema.crc64)
        )
        known = released() if older is None else older
        self._writers = {one.crc64: general.parsed(one) for one in known}
        self._writers[self._schema.crc64] = self._parsed
        self._by_id: dict[int, Parsed] = {}

    @property
    def prepared(self) -> bool:
        """Return whether `encode` can go without the registry."""
        return bool(self._header)

    def prepare(self) -> None:
        """Learn the registry's id of this build's schema, so `encode` never waits.

        Raises: `LogUnavailable`, `LogRejected` (the registry finds it incompatible).
        """
        if self._ids is not None and not self._header:
            self._header = confluent_header(self._ids.id_for(self._schema.text))

    def encode(self, event: Envelope) -> bytes:
        """Return the record's bytes, header included.

        Raises: `InvalidEvent` where a field's value does not fit its Avro type;
        with a registry, until it was reached once, what `prepare` raises.
        """
        if not self._header:
            self.prepare()
        if self._fast:
            record = fast_writer.write(self._header, event)
            if record is not None:
                return record
        return general.write(self._header, event, self._parsed)

    def decode(self, record: bytes) -> Envelope:
        """Return the event in `record`.

        Raises: `UndecodableRecord` where the bytes are no event, or not all of them
        are; `UnknownSchema` for a schema, event type or enum symbol that this build
        lacks; `LogUnavailable` where the registry must be asked and is away.
        """
        identity = schema_identity(record)
        if isinstance(identity, int):
            writer, start = self._writer_by_id(identity), CONFLUENT_BYTES
        else:
            writer, start = self._writer_by_crc(identity), SINGLE_OBJECT_BYTES
        if writer is not self._parsed:
            return general.read(record, start, writer, self._parsed)
        if self._fast:
            event = fast_reader.read(record, start)
            if event is not None:
                return event
        return general.read(record, start, writer)

    def _writer_by_crc(self, crc64: bytes) -> Parsed:
        writer = self._writers.get(crc64)
        if writer is None:
            raise UnknownSchema(f"schema fingerprint {crc64[::-1].hex()}")
        return writer

    def _writer_by_id(self, schema_id: int) -> Parsed:
        if self._ids is None:
            raise UnknownSchema(
                f"Confluent schema id {schema_id}, and no schema registry is set"
            )
        writer = self._by_id.get(schema_id)
        if writer is None:
            writer = self._known(schema_id, self._ids.schema_for(schema_id))
            self._by_id[schema_id] = writer
        return writer

    def _known(self, schema_id: int, text: str) -> Parsed:
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
