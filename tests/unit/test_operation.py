from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from cachemind.core.fold import kind_of
from cachemind.core.op_hash import op_hash
from cachemind.core.operation import hash_of, operation_of
from cachemind.events import Body, Stored
from tests.strategies import bodies, stored, times_ns

_FREE_TEXT = ("reason", "policy", "key_id", "response")


@given(body=bodies(), at_ns=times_ns)
def test_the_hash_is_of_kind_key_payload_and_time(body: Body, at_ns: int) -> None:
    key, payload = operation_of(body)
    assert hash_of(body, at_ns) == op_hash(kind_of(body), key, payload, at_ns)


@given(body=bodies(), at_ns=times_ns, data=st.data())
def test_another_text_is_another_hash(
    body: Body, at_ns: int, data: st.DataObject
) -> None:
    names = [each.name for each in fields(body) if each.name in _FREE_TEXT]
    assume(names)
    name = data.draw(st.sampled_from(names))
    before: Any = getattr(body, name)
    more: Any = b"x" if isinstance(before, bytes) else "x"
    changed = replace(body, **{name: before + more})
    assert hash_of(changed, at_ns) != hash_of(body, at_ns)


@given(one=bodies(), other=bodies(), at_ns=times_ns)
def test_operations_that_differ_have_hashes_that_differ(
    one: Body, other: Body, at_ns: int
) -> None:
    assume((kind_of(one), operation_of(one)) != (kind_of(other), operation_of(other)))
    assert hash_of(one, at_ns) != hash_of(other, at_ns)


@given(body=stored())
def test_a_stored_is_bound_to_its_key_and_response(body: Stored) -> None:
    assert operation_of(body) == (body.exact_key, body.response)
