"""Commands in Confluent's framing, and replies that are framed as they are asked."""

from __future__ import annotations

import pytest

from cachemind.adapters.memory_registry import MemoryIds
from cachemind.codec.command_framing import RegistryFraming, SingleObjectFraming
from cachemind.codec.commands import (
    command_schema,
    decode_command,
    decode_reply,
    encode_command,
    encode_reply,
    reply_schema,
)
from cachemind.codec.framing import SINGLE_OBJECT_BYTES, confluent_header
from cachemind.core.cache_commands import Logged, Lookup
from cachemind.core.commands import Command, Reply
from cachemind.errors import LogUnavailable, UndecodableRecord, UnknownSchema
from cachemind.types import EventId, Namespace, TraceId
from cachemind_schemas.loader import released_of

COMMAND = Command(
    request_id=EventId(b"\x01" * 16),
    namespace=Namespace("alpha"),
    body=Lookup(request=b"{}"),
)
REPLY = encode_reply(
    Reply(
        request_id=COMMAND.request_id,
        namespace=COMMAND.namespace,
        trace_id=TraceId(b"\x02" * 16),
        lsn=None,
        body=Logged(),
    )
)


class Ids(MemoryIds):
    """Counts what it is asked, and may be away."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.away = False

    def id_for(self, schema_text: str) -> int:
        self._count()
        return super().id_for(schema_text)

    def schema_for(self, schema_id: int) -> str:
        self._count()
        return super().schema_for(schema_id)

    def _count(self) -> None:
        if self.away:
            raise LogUnavailable("away")
        self.asked += 1


def confluent(schema_id: int, record: bytes | None = None) -> bytes:
    body = (record or encode_command(COMMAND))[SINGLE_OBJECT_BYTES:]
    return confluent_header(schema_id) + body


@pytest.fixture
def ids() -> Ids:
    return Ids()


@pytest.fixture
def framing(ids: Ids) -> RegistryFraming:
    return RegistryFraming(ids, ids)


def test_a_command_by_a_registrys_id_is_read_and_answered_by_one(
    framing: RegistryFraming, ids: Ids
) -> None:
    command = confluent(ids.id_for(command_schema()))
    assert framing.decode(command) == COMMAND
    answer = framing.answered(REPLY, command)
    found = int.from_bytes(answer[1:5], "big")
    assert answer[0] == 0
    assert ids.schema_for(found) == reply_schema()
    assert decode_reply(REPLY[:SINGLE_OBJECT_BYTES] + answer[5:]) == decode_reply(REPLY)


def test_a_command_by_fingerprint_asks_no_registry(
    framing: RegistryFraming, ids: Ids
) -> None:
    command = encode_command(COMMAND)
    assert framing.decode(command) == COMMAND
    assert framing.answered(REPLY, command) == REPLY
    assert ids.asked == 0


def test_what_was_learnt_outlives_the_registry(
    framing: RegistryFraming, ids: Ids
) -> None:
    command, other = confluent(ids.id_for(command_schema())), confluent(2)
    framing.decode(command)
    ids.away = True
    assert framing.decode(command) == COMMAND
    assert framing.answered(REPLY, command)[0] == 0
    with pytest.raises(LogUnavailable):
        framing.decode(other)
    with pytest.raises(LogUnavailable):
        RegistryFraming(ids, ids).decode(command)


def test_every_released_schema_is_read(framing: RegistryFraming, ids: Ids) -> None:
    for schema in released_of("commands"):
        ids.id_for(schema.text)
    # Of a schema that is known, and so the bytes are to blame.
    oldest = min(released_of("commands"), key=lambda each: each.version)
    with pytest.raises(UndecodableRecord):
        framing.decode(confluent_header(ids.id_for(oldest.text)) + b"\x01")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"type":"record","name":"Other","fields":[]}', "command schema"),
        ("{", "not Avro"),
        (None, "schema id 77"),
    ],
)
def test_a_schema_that_was_never_released_is_unknown(
    framing: RegistryFraming, ids: Ids, text: str | None, problem: str
) -> None:
    schema_id = 77 if text is None else ids.id_for(text)
    with pytest.raises(UnknownSchema, match=problem):
        framing.decode(confluent(schema_id))


def test_without_a_registry_its_ids_are_unknown() -> None:
    with pytest.raises(UnknownSchema):
        SingleObjectFraming().decode(confluent(1))
    assert SingleObjectFraming().answered(REPLY, b"\x00") == REPLY
    assert decode_command(encode_command(COMMAND)) == COMMAND
