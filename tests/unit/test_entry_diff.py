from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.delta import delta
from cachemind.core.entry_diff import changed_fields, changes
from cachemind.core.state import Entry
from cachemind.types import ExactKey, Version
from tests.vectors.make_state import ENTRY


def entry(number: int, version: int) -> Entry:
    key = ExactKey(bytes([number]) * 32)
    return replace(ENTRY, exact_key=key, version=Version(version))


states = st.dictionaries(st.integers(0, 8), st.integers(1, 3)).map(
    lambda found: {
        e.exact_key: e for e in (entry(*pair) for pair in sorted(found.items()))
    }
)


@given(before=states, after=states)
def test_walking_two_states_finds_what_comparing_every_key_finds(
    before: Mapping[ExactKey, Entry], after: Mapping[ExactKey, Entry]
) -> None:
    found = tuple(changes(before.values(), after.values()))
    assert found == delta({*before, *after}, before, after).changes


def test_a_changed_entry_names_its_fields() -> None:
    one = entry(1, 1)
    other = replace(one, version=Version(2), pinned=not one.pinned)
    (change,) = changes([one], [other])
    assert changed_fields(change) == ("version", "pinned")


def test_an_entry_that_came_or_went_names_none() -> None:
    (gone,) = changes([entry(1, 1)], [])
    (come,) = changes([], [entry(1, 1)])
    assert changed_fields(gone) == changed_fields(come) == ()
