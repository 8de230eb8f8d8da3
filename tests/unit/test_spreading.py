"""Partitions over members: fair, whoever subscribed to what, and few are moved."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.spreading import Place, spread

topics = st.dictionaries(st.sampled_from("abcdefg"), st.integers(0, 4), max_size=7)
names = st.sets(st.sampled_from(["m1", "m2", "m3", "m4"]), min_size=1)


@pytest.mark.parametrize(
    ("partitions", "held", "expected"),
    [
        pytest.param(
            {"a": 1, "b": 1},
            {},
            {"m1": [("a", 0)], "m2": [("b", 0)]},
            id="topics-of-one-partition-are-spread",
        ),
        pytest.param(
            {"a": 2},
            {"m2": {("a", 0)}, "m1": {("a", 1)}},
            {"m1": [("a", 1)], "m2": [("a", 0)]},
            id="what-was-held-stays",
        ),
        pytest.param(
            {"a": 3},
            {"m2": {("a", 0), ("a", 1), ("a", 2)}},
            {"m1": [("a", 1)], "m2": [("a", 0), ("a", 2)]},
            id="who-comes-gets-a-share",
        ),
        pytest.param({"a": 0}, {}, {"m1": [], "m2": []}, id="a-topic-that-is-gone"),
    ],
)
def test_two_members(
    partitions: Mapping[str, int],
    held: Mapping[str, set[Place]],
    expected: Mapping[str, list[Place]],
) -> None:
    members = {name: frozenset("ab") for name in ("m1", "m2")}
    assert spread(partitions, members, held) == expected


@given(partitions=topics, names=names, data=st.data())
def test_each_partition_is_one_members_and_all_have_as_many(
    partitions: dict[str, int], names: set[str], data: st.DataObject
) -> None:
    members = {name: frozenset(partitions) for name in names}
    places = {(t, at) for t, count in partitions.items() for at in range(count)}
    held = {
        n: data.draw(st.sets(st.sampled_from(sorted(places)))) for n in names if places
    }
    found = spread(partitions, members, held)
    assert sorted(place for own in found.values() for place in own) == sorted(places)
    sizes = [len(own) for own in found.values()]
    assert max(sizes) - min(sizes) <= 1
    # Nothing is moved where nothing has changed.
    again = {name: set(own) for name, own in found.items()}
    assert {
        n: set(own) for n, own in spread(partitions, members, again).items()
    } == again


@given(partitions=topics, names=names, data=st.data())
def test_nobody_is_given_what_he_has_not_subscribed_to(
    partitions: dict[str, int], names: set[str], data: st.DataObject
) -> None:
    some = st.sets(st.sampled_from("abcdefg"))
    members = {name: data.draw(some) for name in names}
    found = spread(partitions, members, {})
    for name, own in found.items():
        assert {topic for topic, _ in own} <= members[name]
    wanted = {
        (topic, at)
        for topic, count in partitions.items()
        for at in range(count)
        if any(topic in own for own in members.values())
    }
    assert {place for own in found.values() for place in own} == wanted
