"""How commands name their schema, and that a reply names its own the same way."""

from __future__ import annotations

from typing import Protocol

from cachemind.codec.commands import decode_command, reply_schema
from cachemind.codec.framing import CONFLUENT, SINGLE_OBJECT_BYTES, confluent_header
from cachemind.core.commands import Command
from cachemind.errors import UnknownSchema
from cachemind.ports import SchemaIds
from cachemind_schemas.loader import parse


class Framing(Protocol):
    """Reads commands, and frames their replies alike; safe to use from any thread."""

    def decode(self, record: bytes) -> Command:
        """Return the command in `record`.

        Raises: `UndecodableRecord`, `UnknownSchema`; `LogUnavailable`, `LogRejected`
        where a registry must be asked.
        """
        ...

    def answered(self, reply: bytes, command: bytes) -> bytes:
        """Return `reply`, in single-object encoding, framed as `command` is."""
        ...


class SingleObjectFraming:
    """Where there is no registry: a record says its schema's fingerprint."""

    def decode(self, record: bytes) -> Command:
        """Return the command in `record`."""
        return decode_command(record)

    def answered(self, reply: bytes, command: bytes) -> bytes:
        """Return `reply` as it is."""
        return reply


class RegistryFraming:
    """Where there is a registry: a client may use either, and is answered alike.

    A client's schema must be one that was released, as a fingerprint would say; by
    which subject it is registered does not matter.
    """

    def __init__(self, commands: SchemaIds, replies: SchemaIds) -> None:
        """Ask nothing yet."""
        self._commands = commands
        self._replies = replies
        self._fingerprints: dict[int, bytes] = {}
        self._reply_id: int | None = None

    def decode(self, record: bytes) -> Command:
        """Return the command in `record`; ask for what its reply will need, too."""
        if record[:1] == CONFLUENT:
            self._known_reply_id()
        return decode_command(record, self._fingerprint)

    def answered(self, reply: bytes, command: bytes) -> bytes:
        """Return `reply` framed as `command` is: its Avro bytes are the same."""
        if command[:1] != CONFLUENT:
            return reply
        return confluent_header(self._known_reply_id()) + reply[SINGLE_OBJECT_BYTES:]

    def _known_reply_id(self) -> int:
        if self._reply_id is None:
            self._reply_id = self._replies.id_for(reply_schema())
        return self._reply_id

    def _fingerprint(self, schema_id: int) -> bytes:
        found = self._fingerprints.get(schema_id)
        if found is None:
            try:
                found = parse("registry", self._commands.schema_for(schema_id)).crc64
            except ValueError as error:
                raise UnknownSchema(f"schema id {schema_id}, not Avro") from error
            self._fingerprints[schema_id] = found
        return found
