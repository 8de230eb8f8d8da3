"""A receipt says of a record what an auditor may know, and is signed as one."""

from __future__ import annotations

from hashlib import sha256
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.receipt_chain import (
    KEY_EVENT_TYPE,
    MAX_SIGNING_INPUT_BYTES,
    RECEIPT_TYPE,
    items_of,
    key_event_signing_input,
    receipt_for,
    receipt_signing_input,
    record_hash,
    signing_input,
)
from cachemind.errors import InvalidEvent
from cachemind.events import Body, Envelope, Feedback, Reads, Refused, Stored
from cachemind.receipts import NO_LEAF, UNREADABLE, KeyId, LogId, Receipt, Seq
from cachemind.types import Lsn, Offset, Partition, Sha256
from tests.vectors.make_events import BODIES, envelope

SOURCE = Lsn(Partition(3), Offset(12_345))
EVENTS = {name: envelope(body, 7) for name, body in BODIES.items()}
each_event = pytest.mark.parametrize("event", EVENTS.values(), ids=list(EVENTS))


def receipt_of(record: bytes | None, event: Envelope | None) -> Receipt:
    return receipt_for(
        record,
        event,
        log_id=LogId("audit.example/cachemind"),
        seq=Seq(70),
        previous=NO_LEAF,
        source_topic="cachemind.wal",
        source=SOURCE,
        signed_at_ns=1,
        key_id=KeyId("0123456789abcdef"),
    )


def test_the_vectors_have_every_kind_of_event() -> None:
    assert {type(event.body) for event in EVENTS.values()} == set(get_args(Body))


@each_event
def test_a_receipt_says_what_its_record_says(event: Envelope) -> None:
    found = receipt_of(b"the record's bytes", event)

    assert found.record_hash == sha256(b"the record's bytes").digest()
    assert (found.partition, found.source) == (SOURCE.partition, SOURCE)
    assert found.namespace == event.namespace
    assert found.timeline == event.timeline
    assert found.writer == event.writer
    assert found.op_hash == event.op_hash
    assert len(found.items) == (
        len(event.body.items) if isinstance(event.body, Reads) else 1
    )


@each_event
def test_one_item_tells_of_whatever_is_no_look_up(event: Envelope) -> None:
    body = event.body
    if isinstance(body, Reads):
        return
    (item,) = items_of(event)
    assert item.outcome == receipt_of(b"", event).kind
    assert item.principal == event.principal
    assert item.occurred_at_us == event.occurred_at_ns // 1000
    if not isinstance(body, Refused):
        assert item.trace_id == event.trace_id


def test_each_look_up_has_its_own_item() -> None:
    event = EVENTS["reads-group-of-each-outcome"]
    assert isinstance(event.body, Reads)
    for read, item in zip(event.body.items, items_of(event), strict=True):
        assert item.trace_id == read.trace_id
        assert item.principal == read.principal
        assert item.occurred_at_us == read.occurred_at_ns // 1000
        assert item.outcome == read.outcome.value
        assert item.context_hash == Sha256(read.exact_key)
        assert item.prompt_hash == read.prompt_hash
        assert item.response_hash == read.response_hash


def test_a_stored_response_is_told_by_its_hashes() -> None:
    event = EVENTS["stored-with-all"]
    assert isinstance(event.body, Stored)
    (item,) = items_of(event)
    assert item.outcome == "stored"
    assert item.context_hash == Sha256(event.body.context_key)
    assert item.prompt_hash == event.body.prompt_hash
    assert item.response_hash == event.body.response_hash


def test_what_is_about_one_key_names_it() -> None:
    refused, feedback = EVENTS["refused"], EVENTS["feedback-right"]
    assert isinstance(refused.body, Refused)
    assert isinstance(feedback.body, Feedback)
    assert items_of(refused)[0].trace_id == refused.body.trace_id
    assert items_of(refused)[0].context_hash == Sha256(refused.body.exact_key)
    assert items_of(feedback)[0].context_hash == Sha256(feedback.body.matched_key)
    assert items_of(EVENTS["pinned"])[0].context_hash is not None
    assert items_of(EVENTS["evicted"])[0].context_hash is None


@pytest.mark.parametrize("record", [b"garbage", b"", None])
def test_a_record_that_cannot_be_read_has_a_receipt_too(record: bytes | None) -> None:
    found = receipt_of(record, None)
    assert found.kind == UNREADABLE
    assert found.record_hash == sha256(record or b"").digest() == record_hash(record)
    assert (found.namespace, found.writer, found.timeline) == ("", "", 0)
    assert (found.op_hash, found.items) == (None, ())


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        pytest.param("", b"", b"CMv1 0  0 ", id="nothing"),
        pytest.param("a/v1", b"\x00\n ", b"CMv1 4 a/v1 3 \x00\n ", id="bytes"),
        pytest.param("ö", b"x", b"CMv1 2 \xc3\xb6 1 x", id="lengths-in-bytes"),
    ],
)
def test_the_signing_input_is_framed(kind: str, body: bytes, expected: bytes) -> None:
    assert signing_input(kind, body) == expected


@given(st.text(), st.binary(), st.text(), st.binary())
def test_no_two_signing_inputs_are_the_same(
    kind: str, body: bytes, other: str, more: bytes
) -> None:
    same = signing_input(kind, body) == signing_input(other, more)
    assert same == ((kind, body) == (other, more))


@given(st.binary(max_size=6000))
def test_a_receipt_of_any_size_has_a_short_signing_input(receipt: bytes) -> None:
    found = receipt_signing_input(receipt)
    assert found == signing_input(RECEIPT_TYPE, sha256(receipt).digest())
    assert found.startswith(b"CMv1 25 cachemind/receipt-hash/v1 32 ")


def test_a_key_event_is_signed_as_it_is_unless_too_long() -> None:
    frame = len(signing_input(KEY_EVENT_TYPE, bytes(1000))) - 1000
    longest = bytes(MAX_SIGNING_INPUT_BYTES - frame)

    assert key_event_signing_input(longest) == (
        b"CMv1 22 cachemind/key-event/v1 %d %b" % (len(longest), longest)
    )
    with pytest.raises(InvalidEvent, match="signed in 4096 bytes, found 4097"):
        key_event_signing_input(longest + b"\x00")
