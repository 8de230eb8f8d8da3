"""What every `SchemaIds` promises. Subclass it and give a fixture `ids`."""

from __future__ import annotations

import json

import pytest

from cachemind.codec import Codec
from cachemind.errors import UnknownSchema
from cachemind.ports import SchemaIds
from cachemind_schemas.loader import current
from tests.vectors import make_events

FIRST = '{"type":"record","name":"First","fields":[]}'
SECOND = '{"type":"record","name":"Second","fields":[]}'


class SchemaIdsContract:
    """One test a promise of the port."""

    def test_a_registered_schema_is_found_by_its_id(self, ids: SchemaIds) -> None:
        found = ids.schema_for(ids.id_for(current().text))
        assert json.loads(found) == json.loads(current().text)

    def test_the_same_schema_keeps_its_id(self, ids: SchemaIds) -> None:
        first = ids.id_for(FIRST)
        assert ids.id_for(SECOND) != first
        assert ids.id_for(FIRST) == first

    def test_an_id_never_given_is_unknown(self, ids: SchemaIds) -> None:
        with pytest.raises(UnknownSchema, match="schema id 4711"):
            ids.schema_for(4711)

    def test_a_codec_round_trips_through_it(self, ids: SchemaIds) -> None:
        event = make_events.envelope(make_events.BODIES["stored-with-all"], 1)
        record = Codec(ids).encode(event)
        assert record[:1] == b"\x00"
        assert Codec(ids).decode(record) == event
