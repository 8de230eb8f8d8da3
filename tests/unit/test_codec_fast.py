"""The written-out schema must never differ from the general reader and writer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.codec import fast_reader, fast_writer, framing, general
from cachemind.errors import CacheError
from cachemind.events import Envelope, Reads, Stored
from cachemind_schemas.loader import current
from tests.strategies import envelopes, hostile_numbers, read_batches, stored
from tests.vectors import make_events

HEADER = framing.single_object_header(current().crc64)
START = len(HEADER)
PARSED = general.parsed(current())
FREQUENT = envelopes(body=read_batches(max_size=40) | stored())


def _general(record: bytes) -> Envelope | None:
    try:
        return general.read(record, START, PARSED)
    except CacheError:
        return None


def test_the_fast_path_is_written_for_the_current_schema() -> None:
    assert current().crc64 == fast_writer.SCHEMA


@given(event=FREQUENT)
def test_the_fast_writer_writes_what_the_general_one_does(event: Envelope) -> None:
    written = fast_writer.write(HEADER, event)
    negative = isinstance(event.body, Stored) and event.body.evidence.upstream_status
    if negative and negative < 0:
        assert written is None
    else:
        assert written == general.write(HEADER, event, PARSED)


@given(event=FREQUENT)
def test_the_fast_reader_reads_what_the_general_one_does(event: Envelope) -> None:
    record = general.write(HEADER, event, PARSED)
    assert fast_reader.read(record, START) in (event, None)
    if isinstance(event.body, Reads):
        assert fast_reader.read(record, START) == event


@given(event=FREQUENT, draw=st.data())
def test_what_the_fast_reader_takes_the_general_one_reads_alike(
    event: Envelope, draw: st.DataObject
) -> None:
    record = bytearray(general.write(HEADER, event, PARSED))
    for _ in range(draw.draw(st.integers(1, 4))):
        start = draw.draw(st.integers(START, len(record)))
        end = start + draw.draw(st.integers(0, 2))
        record[start:end] = draw.draw(st.binary(max_size=12) | hostile_numbers)
    found = fast_reader.read(bytes(record), START)
    # Compared as text: NaN is unequal to itself.
    assert found is None or repr(found) == repr(_general(bytes(record)))


@pytest.mark.parametrize("name", sorted(make_events.BODIES))
def test_each_frequent_vector_takes_the_fast_path(name: str) -> None:
    body = make_events.BODIES[name]
    event = make_events.envelope(body, 300)
    record = general.write(HEADER, event, PARSED)
    frequent = isinstance(body, Reads | Stored)
    assert fast_writer.write(HEADER, event) == (record if frequent else None)
    assert fast_reader.read(record, START) == (event if frequent else None)


@pytest.mark.parametrize("bits", range(64))
def test_numbers_of_every_length_survive(bits: int) -> None:
    number = 2**bits - 1
    event = make_events.envelope(make_events.BODIES["reads-one-hit"], number)
    event = replace(event, occurred_at_ns=number)
    record = fast_writer.write(HEADER, event)
    assert record == general.write(HEADER, event, PARSED)
    assert record is not None
    assert fast_reader.read(record, START) == event


def test_a_number_past_long_is_left_to_the_general_writer() -> None:
    event = make_events.envelope(make_events.BODIES["reads-one-hit"], 2**63)
    assert fast_writer.write(HEADER, event) is None


def test_a_long_text_survives() -> None:
    event = make_events.envelope(make_events.BODIES["stored-with-all"], 1)
    assert isinstance(event.body, Stored)
    event = replace(event, body=replace(event.body, response=b"x" * 70_000))
    record = fast_writer.write(HEADER, event)
    assert record == general.write(HEADER, event, PARSED)
    assert record is not None
    assert fast_reader.read(record, START) == event


def test_an_endless_number_is_given_up_at_once() -> None:
    record = HEADER + bytes(64) + b"\xff" * 2_000_000
    assert fast_reader.read(record, START) is None
