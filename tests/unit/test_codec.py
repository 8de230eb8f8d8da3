from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from typing import Any

import avro.io
import avro.schema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.codec import Codec, framing, to_avro
from cachemind.errors import (
    InvalidEvent,
    LogUnavailable,
    UndecodableRecord,
    UnknownSchema,
)
from cachemind.events import Envelope, PolicyChanged, Reads
from cachemind.types import Namespace, Principal
from cachemind_schemas.loader import Schema, current, parse, released
from tests.strategies import envelopes, hostile_numbers, read_batches
from tests.vectors import make_events

Change = Callable[[dict[str, Any]], None]

APACHE = avro.schema.parse(current().text)
CODEC = Codec()
EVENT = make_events.envelope(make_events.BODIES["stored-with-all"], 3)
HEADER = framing.single_object_header(current().crc64)


class Registry:
    """Schema ids in memory, as a registry gives them: one a text, from 1."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.asked = 0
        self.away = False

    def id_for(self, schema_text: str) -> int:
        self._ask()
        if schema_text not in self.texts:
            self.texts.append(schema_text)
        return self.texts.index(schema_text) + 1

    def schema_for(self, schema_id: int) -> str:
        self._ask()
        if not 1 <= schema_id <= len(self.texts):
            raise UnknownSchema(f"schema id {schema_id}")
        return self.texts[schema_id - 1]

    def _ask(self) -> None:
        self.asked += 1
        if self.away:
            raise LogUnavailable("registry is away")


# ---- what is written is read ---------------------------------------------------------


@given(event=envelopes())
def test_decoding_gives_the_event_that_was_encoded(event: Envelope) -> None:
    assert CODEC.decode(CODEC.encode(event)) == event


@given(event=envelopes(body=read_batches(max_size=40)))
def test_a_group_of_reads_survives(event: Envelope) -> None:
    assert CODEC.decode(CODEC.encode(event)) == event


@given(event=envelopes())
def test_confluent_framing_changes_only_the_header(event: Envelope) -> None:
    framed = Codec(make_events.FixedId())
    record = framed.encode(event)
    assert record[:5] == b"\x00\x00\x00\x00\x07"
    assert record[5:] == CODEC.encode(event)[10:]
    assert framed.decode(record) == event


def test_a_codec_with_a_registry_reads_single_object_records_too() -> None:
    assert Codec(Registry()).decode(CODEC.encode(EVENT)) == EVENT


# ---- a second implementation agrees --------------------------------------------------


@given(event=envelopes())
def test_apache_avro_reads_what_we_write(event: Envelope) -> None:
    record = BytesIO(CODEC.encode(event)[len(HEADER) :])
    decoder = avro.io.BinaryDecoder(record)
    found = avro.io.DatumReader(APACHE).read(decoder)
    assert record.read() == b""
    assert found == _plain(event)


@given(event=envelopes())
def test_we_read_what_apache_avro_writes(event: Envelope) -> None:
    out = BytesIO()
    avro.io.DatumWriter(APACHE).write(_plain(event), avro.io.BinaryEncoder(out))
    assert CODEC.decode(HEADER + out.getvalue()) == event


def _plain(event: Envelope) -> dict[str, Any]:
    values = to_avro.envelope(event)
    values["body"] = _lists(values["body"][1])
    return values


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_lists(part) for part in value]
    return str(value) if isinstance(value, str) else value


# ---- golden vectors ------------------------------------------------------------------


def test_the_vectors_are_what_this_build_writes() -> None:
    assert make_events.TARGET.read_text("utf-8") == make_events.document()


@pytest.mark.parametrize("name", sorted(make_events.BODIES))
def test_a_vector_decodes_to_its_event(name: str) -> None:
    written = json.loads(make_events.TARGET.read_text("utf-8"))["events"]
    vector = next(one for one in written if one["name"] == name)
    body = make_events.BODIES[name]
    expected = make_events.envelope(body, written.index(vector))
    framed = Codec(make_events.FixedId())
    assert CODEC.decode(bytes.fromhex(vector["single_object"])) == expected
    assert framed.decode(bytes.fromhex(vector["confluent"])) == expected


def test_identifiers_are_at_a_constant_place() -> None:
    record = CODEC.encode(EVENT)
    assert record[10:26] == EVENT.event_id
    assert record[26:42] == EVENT.trace_id
    assert record[42:74] == EVENT.op_hash


# ---- what is no event is refused -----------------------------------------------------

WHOLE = CODEC.encode(EVENT)
PREFIX = WHOLE[:74]
"""Header, event_id, trace_id, op_hash."""
NUMBERS = b"\x00\x00\x00"
"""occurred_at_ns, timeline, writer_seq: zero each."""
TWO_TEXTS = b"\x02k\x02r"
"""A whole `KeyShredded`."""


def _vector(name: str) -> bytes:
    return CODEC.encode(make_events.envelope(make_events.BODIES[name], 1))


PINNED, FEEDBACK, REFUSED, MISS = map(
    _vector, ("pinned", "feedback-right", "refused", "reads-one-miss")
)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        pytest.param(b"", "empty", id="nothing"),
        pytest.param(b"{}", "starts with neither C3 01 nor 00", id="json"),
        pytest.param(b"\xc3", "starts with neither C3 01 nor 00", id="half-a-mark"),
        pytest.param(b"\xc3\x02" + WHOLE[2:], "starts with neither", id="other-mark"),
        pytest.param(WHOLE[:9], "cut inside the single-object header", id="cut-header"),
        pytest.param(b"\x00\x00\x00", "cut inside the Confluent", id="cut-confluent"),
        pytest.param(HEADER, "cut, or a length", id="header-only"),
        pytest.param(WHOLE[:-1], "cut, or a length", id="last-byte-missing"),
        pytest.param(WHOLE + b"\x00", "1 bytes follow the event", id="trailing"),
        pytest.param(WHOLE + WHOLE, f"{len(WHOLE)} bytes follow", id="twice"),
        pytest.param(
            PREFIX + b"\x01\x00\x00\x02a\x00\x00\x12\x00",
            "invalid occurred_at_ns",
            id="time-below-zero",
        ),
        pytest.param(
            PREFIX + NUMBERS + b"\x02A\x00\x00\x12\x00", "invalid namespace", id="name"
        ),
        pytest.param(
            PREFIX + NUMBERS + b"\x02\xff\x00\x00\x12\x00", "not UTF-8", id="utf-8"
        ),
        pytest.param(
            PREFIX + NUMBERS + b"\x02a\x00\x00\x00\x00", "invalid items", id="no-reads"
        ),
        pytest.param(
            PREFIX + NUMBERS + b"\x01", "cut, or a length", id="length-below-zero"
        ),
        pytest.param(
            PREFIX + NUMBERS + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            "cut, or a length",
            id="length-of-exabytes",
        ),
        pytest.param(
            PREFIX + NUMBERS + b"\x02a\x00\x00\x00" + b"\xfe" + b"\xff" * 8 + b"\x01",
            "cut, or a length",
            id="exabytes-of-reads",
        ),
        pytest.param(
            PREFIX + NUMBERS + b"\x02a\x00\x00\x08" + b"\xff" * 9 + b"\x01\x00",
            "cut, or a length",
            id="block-of-exabytes",
        ),
        pytest.param(
            PREFIX + NUMBERS + b"\x02a\x00\x00\x08\xfe" + b"\xff" * 8 + b"\x01\x00",
            "cut, or a length",
            id="exabytes-of-keys",
        ),
        pytest.param(
            PREFIX + NUMBERS + b"\x02a\x00\x00\x01" + TWO_TEXTS,
            "union branch out of range",
            id="branch-from-the-end",
        ),
        pytest.param(
            PREFIX + b"\xff" * 9 + b"\x02" + b"\x00\x00\x02a\x00\x00\x14" + TWO_TEXTS,
            "a number has more than 64 bits",
            id="number-of-65-bits",
        ),
        pytest.param(
            PREFIX + b"\x80" * 10 + b"\x00" * 4 + TWO_TEXTS,
            "a number has more than 64 bits",
            id="number-of-eleven-bytes",
        ),
        pytest.param(
            PINNED[:-1] + b"\x02", "a boolean is neither", id="boolean-of-two"
        ),
        pytest.param(
            FEEDBACK[:-1] + b"\x01",
            "enum symbol out of range",
            id="symbol-from-the-end",
        ),
        pytest.param(
            REFUSED.replace(b"\xee\x07", b"\xfe\xff\xff\xff\x1f"),
            "an int has more than 32 bits",
            id="status-of-33-bits",
        ),
        pytest.param(
            MISS.replace(b"\x08\x00\x00\x00", b"\x08\x04\x00\x00"),
            "union branch out of range",
            id="null-or-hash-or-what",
        ),
    ],
)
def test_bytes_that_are_no_event_are_refused(record: bytes, reason: str) -> None:
    with pytest.raises(UndecodableRecord) as caught:
        CODEC.decode(record)
    assert caught.value.reason.startswith(reason) or reason in caught.value.reason


def test_exabytes_of_source_chunks_are_refused_at_once() -> None:
    chunks = EVENT.body.source_chunks  # type: ignore[union-attr] # it is a Stored
    whole = b"\x04" + chunks[0] + chunks[1] + b"\x00"
    assert whole in WHOLE
    endless = b"\xfe" + b"\xff" * 8 + b"\x01"
    for record in (
        WHOLE.replace(whole, endless + whole[1:]),
        WHOLE[: WHOLE.index(whole)] + endless,
    ):
        with pytest.raises(UndecodableRecord):
            CODEC.decode(record)


def test_no_beginning_of_a_record_is_a_record() -> None:
    for length in range(len(WHOLE)):
        with pytest.raises(UndecodableRecord):
            CODEC.decode(WHOLE[:length])


@given(record=st.binary(max_size=200))
def test_any_bytes_give_an_event_or_a_refusal(record: bytes) -> None:
    _event_or_refusal(record)


@given(tail=st.binary(max_size=200))
def test_any_bytes_after_a_header_give_an_event_or_a_refusal(tail: bytes) -> None:
    _event_or_refusal(HEADER + tail)
    _event_or_refusal(PREFIX + NUMBERS + b"\x02a\x00\x00" + tail)


@given(event=envelopes(), draw=st.data())
def test_any_mutation_gives_an_event_or_a_refusal(
    event: Envelope, draw: st.DataObject
) -> None:
    _event_or_refusal(_mutated(CODEC.encode(event), draw))


@given(event=envelopes(), draw=st.data())
def test_any_mutation_of_an_older_record_gives_an_event_or_a_refusal(
    event: Envelope, draw: st.DataObject
) -> None:
    record = _mutated(_rewritten(event, OLDER, origin="somewhere"), draw)
    _event_or_refusal(record, Codec(older=[OLDER]))


def _mutated(whole: bytes, draw: st.DataObject) -> bytes:
    record = bytearray(whole)
    for _ in range(draw.draw(st.integers(1, 4))):
        start = draw.draw(st.integers(0, len(record)))
        end = start + draw.draw(st.integers(0, 2))
        record[start:end] = draw.draw(st.binary(max_size=12) | hostile_numbers)
    return bytes(record)


def _event_or_refusal(record: bytes, codec: Codec = CODEC) -> None:
    try:
        event = codec.decode(record)
    except (UndecodableRecord, UnknownSchema):
        return
    # NaN is a double like any other, and the only value unequal to itself.
    again = CODEC.decode(CODEC.encode(event))
    assert CODEC.encode(again) == CODEC.encode(event)


def test_a_refusal_quotes_nothing_of_the_record() -> None:
    secret = "my secret prompt"
    record = WHOLE.replace("wie heißt".encode(), secret.encode()[:9] + b"\xff")
    with pytest.raises(UndecodableRecord) as caught:
        CODEC.decode(record)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert "secret" not in str(caught.value)


# ---- what this build cannot know stops it --------------------------------------------


def test_an_unknown_fingerprint_is_named() -> None:
    with pytest.raises(UnknownSchema) as caught:
        CODEC.decode(b"\xc3\x01" + bytes(range(8)) + WHOLE[10:])
    assert caught.value.identity == "schema fingerprint 0706050403020100"


def test_a_confluent_record_without_a_registry_is_named() -> None:
    with pytest.raises(UnknownSchema) as caught:
        CODEC.decode(b"\x00\x00\x00\x01\x02" + WHOLE[10:])
    assert caught.value.identity.startswith("Confluent schema id 258, and no schema")


def test_an_id_that_the_registry_never_gave_is_unknown() -> None:
    with pytest.raises(UnknownSchema, match="schema id 9"):
        Codec(Registry()).decode(b"\x00\x00\x00\x00\x09" + WHOLE[10:])


@pytest.mark.parametrize("text", ['"string"', "no json", '{"type":"record"}'])
def test_a_registered_schema_of_something_else_is_unknown(text: str) -> None:
    with pytest.raises(UnknownSchema, match="schema id 1"):
        Codec(Registry(text)).decode(b"\x00\x00\x00\x00\x01" + WHOLE[10:])


def test_the_same_schema_in_other_words_is_known() -> None:
    reworded = json.dumps(json.loads(current().canonical), indent=3)
    record = b"\x00\x00\x00\x00\x01" + WHOLE[10:]
    assert Codec(Registry(reworded)).decode(record) == EVENT


def test_a_registry_that_is_away_is_no_verdict_on_the_record() -> None:
    registry = Registry(current().text)
    registry.away = True
    codec = Codec(registry)
    record = b"\x00\x00\x00\x00\x01" + WHOLE[10:]
    with pytest.raises(LogUnavailable):
        codec.decode(record)
    registry.away = False
    assert codec.decode(record) == EVENT


def test_the_registry_is_asked_once_an_id() -> None:
    registry = Registry()
    codec = Codec(registry)
    codec.prepare()
    assert registry.asked == 1
    record = codec.encode(EVENT)
    for _ in range(3):
        assert codec.decode(codec.encode(EVENT)) == codec.decode(record)
    assert registry.asked == 2


def test_encoding_waits_for_no_registry_once_prepared() -> None:
    registry = Registry()
    codec = Codec(registry)
    codec.prepare()
    registry.away = True
    assert codec.encode(EVENT)[:5] == b"\x00\x00\x00\x00\x01"


def test_encoding_needs_the_registry_until_it_was_reached() -> None:
    registry = Registry()
    registry.away = True
    codec = Codec(registry)
    with pytest.raises(LogUnavailable):
        codec.encode(EVENT)
    registry.away = False
    assert codec.decode(codec.encode(EVENT)) == EVENT


# ---- values that fit no schema -------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(replace(EVENT, occurred_at_ns=2**63), id="past-long"),
        pytest.param(replace(EVENT, principal=Principal("\ud800")), id="surrogate"),
        pytest.param(replace(EVENT, body=PolicyChanged(policy="\udfff")), id="in-body"),
    ],
)
def test_what_avro_cannot_hold_is_an_invalid_event(event: Envelope) -> None:
    with pytest.raises(InvalidEvent) as caught:
        CODEC.encode(event)
    assert caught.value.field == type(event.body).__name__


def test_a_failed_encoding_leaves_nothing_behind() -> None:
    with pytest.raises(InvalidEvent):
        CODEC.encode(replace(EVENT, occurred_at_ns=2**63))
    assert CODEC.encode(EVENT) == WHOLE


# ---- schemas of other times ----------------------------------------------------------


def _schema(change: Change) -> Schema:
    schema = json.loads(current().text)
    change(schema)
    return parse("other", json.dumps(schema))


def _with_origin(schema: dict[str, Any]) -> None:
    field = {"name": "origin", "type": "string", "doc": "d", "default": ""}
    schema["fields"].insert(8, field)


OLDER = _schema(_with_origin)


def _outcome(schema: dict[str, Any]) -> dict[str, Any]:
    reads = schema["fields"][-1]["type"][0]
    fields = reads["fields"][0]["type"]["items"]["fields"]
    found: dict[str, Any] = next(f for f in fields if f["name"] == "outcome")["type"]
    return found


def _rewritten(event: Envelope, schema: Schema, **extra: Any) -> bytes:
    values = _plain(event) | extra
    out = BytesIO(framing.single_object_header(schema.crc64))
    out.seek(0, 2)
    apache = avro.schema.parse(schema.text)
    avro.io.DatumWriter(apache).write(values, avro.io.BinaryEncoder(out))
    return out.getvalue()


@pytest.mark.parametrize("schema", released(), ids=lambda one: one.version)
def test_every_released_schema_is_known(schema: Schema) -> None:
    assert CODEC.decode(_rewritten(EVENT, schema)) == EVENT


@pytest.mark.parametrize("name", sorted(make_events.BODIES))
def test_an_older_schema_is_resolved(name: str) -> None:
    event = make_events.envelope(make_events.BODIES[name], 1)
    record = _rewritten(event, OLDER, origin="somewhere")
    with pytest.raises(UnknownSchema):
        CODEC.decode(record)
    assert Codec(older=[OLDER]).decode(record) == event


def test_a_symbol_that_this_build_lacks_is_not_guessed() -> None:
    other = _schema(lambda one: _outcome(one)["symbols"].append("hit_oracle"))
    event = make_events.envelope(make_events.BODIES["reads-one-miss"], 1)
    values = _plain(event)
    values["body"]["items"][0]["outcome"] = "hit_oracle"
    record = _rewritten(event, other, body=values["body"])
    with pytest.raises(UnknownSchema, match="'unrecognised' of enum Outcome"):
        Codec(older=[other]).decode(record)


@pytest.mark.parametrize(
    ("name", "field"),
    [("invalidated-by-all", "kind"), ("feedback-right", "verdict")],
)
def test_the_default_symbol_is_never_an_event(name: str, field: str) -> None:
    event = make_events.envelope(make_events.BODIES[name], 1)
    body = _plain(event)["body"] | {field: "unrecognised"}
    with pytest.raises(UnknownSchema, match="'unrecognised' of enum"):
        CODEC.decode(_rewritten(event, current(), body=body))


def test_a_kind_of_event_that_this_build_lacks_is_not_skipped() -> None:
    novel = {
        "type": "record",
        "name": "Novel",
        "namespace": "cachemind.v1",
        "fields": [{"name": "novelty", "type": "string"}],
    }
    other = _schema(lambda one: one["fields"][-1]["type"].append(novel))
    record = _rewritten(EVENT, other, body={"novelty": "x"})
    with pytest.raises(UnknownSchema, match="event type"):
        Codec(older=[other]).decode(record)


@pytest.mark.parametrize(
    ("record", "identity"),
    [
        pytest.param(
            PREFIX + NUMBERS + b"\x02a\x00\x00\x16\x00",
            "event type 11 of 11",
            id="type",
        ),
        pytest.param(
            FEEDBACK[:-1] + b"\x06",
            "symbol 3 of 3 of enum cachemind.v1.Verdict",
            id="symbol",
        ),
    ],
)
def test_a_position_past_the_schema_is_not_taken_for_corruption(
    record: bytes, identity: str
) -> None:
    with pytest.raises(UnknownSchema) as caught:
        CODEC.decode(record)
    assert caught.value.identity == identity


def test_blocks_of_any_cut_are_the_same_array() -> None:
    """Java's blocking encoder writes a negative count and the block's size."""
    event = make_events.envelope(make_events.BODIES["evicted"], 1)
    record = CODEC.encode(event)
    one, two = event.body.keys  # type: ignore[union-attr] # it is an Evicted
    whole = b"\x04" + one + two + b"\x00"
    assert whole in record
    blocks = b"\x01\x40" + one + b"\x02" + two + b"\x00"
    assert CODEC.decode(record.replace(whole, blocks)) == event


@pytest.mark.parametrize("schema_id", [-1, 2**31])
def test_an_id_that_no_registry_gives_has_no_header(schema_id: int) -> None:
    with pytest.raises(ValueError, match="schema id"):
        framing.confluent_header(schema_id)


def test_reads_keep_their_order() -> None:
    group = make_events.BODIES["reads-group-of-each-outcome"]
    assert isinstance(group, Reads)
    event = replace(EVENT, namespace=Namespace("b"), body=group)
    found = CODEC.decode(CODEC.encode(event)).body
    assert isinstance(found, Reads)
    assert [one.outcome for one in found.items] == [one.outcome for one in group.items]
