from __future__ import annotations

import json
from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.digest import (
    EMPTY_DIGEST,
    add,
    digest_of,
    remove,
    term,
    to_hex,
)
from tests.vectors import make_state

pairs = st.lists(
    st.tuples(st.binary(max_size=40), st.binary(max_size=40)), max_size=8, unique=True
)


@given(entries=pairs, data=st.data())
def test_the_order_of_entries_does_not_matter(
    entries: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(entries))
    one_by_one = EMPTY_DIGEST
    for key, value in shuffled:
        one_by_one = add(one_by_one, key, value)
    assert one_by_one == digest_of(entries)


@given(entries=pairs, key=st.binary(), value=st.binary())
def test_an_entry_that_came_and_left_leaves_no_trace(
    entries: list[tuple[bytes, bytes]], key: bytes, value: bytes
) -> None:
    before = digest_of(entries)
    assert remove(add(before, key, value), key, value) == before


def test_a_byte_cannot_move_between_key_and_value() -> None:
    assert term(b"ab", b"c") != term(b"a", b"bc")


def test_two_entries_that_swap_values_are_seen() -> None:
    assert digest_of([(b"a", b"1"), (b"b", b"2")]) != digest_of(
        [(b"a", b"2"), (b"b", b"1")]
    )


def test_the_same_entry_twice_is_not_the_empty_digest() -> None:
    assert digest_of([(b"a", b"1")] * 2) != EMPTY_DIGEST


def test_a_term_is_the_documented_hash() -> None:
    tag = b"cachemind.state-digest.v1\x00"
    expected = sha256(tag + bytes(7) + b"\x01" + b"k" + b"v").hexdigest()
    assert to_hex(term(b"k", b"v")) == expected


def test_digests_are_those_of_the_vectors() -> None:
    known = json.loads(make_state.PATH.read_text(encoding="utf-8"))["digests"]
    assert make_state.vectors()["digests"] == known
