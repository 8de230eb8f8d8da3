from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.key_event_record import key_event_in, policy_of
from cachemind.errors import InvalidEvent
from cachemind.events import Envelope, PolicyChanged
from cachemind.receipts import SYSTEM_NAMESPACE
from cachemind.types import Namespace
from tests.vectors.make_events import BODIES, envelope


def carrying(policy: str) -> Envelope:
    event = envelope(PolicyChanged(policy=policy), 1)
    return replace(event, namespace=SYSTEM_NAMESPACE)


@given(st.binary(max_size=400))
def test_a_key_event_is_read_back_as_its_exact_bytes(signed: bytes) -> None:
    assert key_event_in(carrying(policy_of(signed))) == signed


def test_the_policy_is_canonical_json() -> None:
    assert policy_of(b"\x00\xff") == '{"audit-key-event":"AP8="}'


@pytest.mark.parametrize("name", list(BODIES))
def test_no_other_event_is_a_key_event(name: str) -> None:
    event = envelope(BODIES[name], 1)
    assert key_event_in(event) is None
    assert key_event_in(replace(event, namespace=SYSTEM_NAMESPACE)) is None


def test_a_namespace_of_a_user_has_no_key_events() -> None:
    event = replace(carrying(policy_of(b"x")), namespace=Namespace("tenant-a"))
    assert key_event_in(event) is None


@pytest.mark.parametrize("policy", ["", "{", "[]", "3", "null", '{"threshold":0.9}'])
def test_another_policy_is_no_key_event(policy: str) -> None:
    assert key_event_in(carrying(policy)) is None


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param('{"audit-key-event":7}', id="no-text"),
        pytest.param('{"audit-key-event":"A*=="}', id="no-base64"),
        pytest.param('{"audit-key-event":"ö"}', id="no-ascii"),
        pytest.param('{"audit-key-event":"AP9="}', id="needless-bits"),
        pytest.param('{"audit-key-event": "AP8="}', id="with-white-space"),
        pytest.param('{"audit-key-event":"AP8=","more":1}', id="with-more"),
        pytest.param('{"audit-key-event":"","audit-key-event":"AP8="}', id="twice"),
    ],
)
def test_a_key_event_written_otherwise_is_refused(policy: str) -> None:
    with pytest.raises(InvalidEvent, match="policy"):
        key_event_in(carrying(policy))
