"""The ids of events that somebody may ask for twice."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.identifiers import uuid7
from cachemind.core.requested import is_requested, request_of, requested_id
from cachemind.types import EventId, Principal

ALICE, BOB = Principal("alice"), Principal("bob")


def test_an_id_is_what_it_always_was() -> None:
    """Gateways of two releases must give one request one id."""
    made = requested_id(ALICE, b"8e03978e-40d5-43e8-bc93-6894a57f9324", b"content")
    assert uuid.UUID(bytes=made) == uuid.UUID("03cddadd-4f4c-8f8b-ad32-586a2cda2836")


@given(request=st.binary(min_size=1), content=st.binary())
def test_it_is_a_uuid8_and_known_as_one(request: bytes, content: bytes) -> None:
    made = uuid.UUID(bytes=requested_id(ALICE, request, content))
    assert (made.version, made.variant) == (8, uuid.RFC_4122)
    assert is_requested(EventId(made.bytes))


@given(now_ns=st.integers(0, 2**63), random=st.binary(min_size=10, max_size=10))
def test_no_other_event_has_such_an_id(now_ns: int, random: bytes) -> None:
    assert not is_requested(uuid7(now_ns, random))


def test_who_asks_and_under_which_id_make_the_request_and_the_content_does_not() -> (
    None
):
    one = requested_id(ALICE, b"1", b"a")
    assert requested_id(ALICE, b"1", b"a") == one
    assert requested_id(ALICE, b"1", b"b") != one
    assert request_of(requested_id(ALICE, b"1", b"b")) == request_of(one)
    for other in (requested_id(BOB, b"1", b"a"), requested_id(ALICE, b"2", b"a")):
        assert request_of(other) != request_of(one)
