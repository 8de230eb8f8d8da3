from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.retention import DAY_NS, HOUR_NS, MINUTE_NS, Dated, outdated
from cachemind.types import Offset

NOW_NS = 1_700_000_000 * 10**9 // DAY_NS * DAY_NS
S = 10**9


def dated(offset: int, age_ns: int, *, permanent: bool = False) -> Dated:
    return Dated(
        offset=Offset(offset), created_at_ns=NOW_NS - age_ns, permanent=permanent
    )


@pytest.mark.parametrize(
    ("found", "gone"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([dated(1, 400 * DAY_NS)], [], id="the-newest-stays"),
        pytest.param([dated(1, 20 * S), dated(2, 10 * S)], [1], id="one-a-minute"),
        pytest.param([dated(1, 70 * S), dated(2, 10 * S)], [], id="two-minutes"),
        pytest.param(
            [dated(1, 119 * MINUTE_NS), dated(2, 61 * MINUTE_NS), dated(3, S)],
            [1],
            id="one-an-hour-after-an-hour",
        ),
        pytest.param(
            [dated(1, 30 * HOUR_NS), dated(2, 29 * HOUR_NS), dated(3, S)],
            [1],
            id="one-a-day-after-a-day",
        ),
        pytest.param([dated(1, 8 * DAY_NS), dated(2, S)], [1], id="none-after-a-week"),
        pytest.param(
            [dated(1, 8 * DAY_NS, permanent=True), dated(2, S)], [], id="named"
        ),
        pytest.param(
            [dated(1, 20 * S), dated(2, 10 * S, permanent=True), dated(3, 5 * S)],
            [1],
            id="a-named-one-takes-nobodys-place",
        ),
        pytest.param([dated(1, -9 * DAY_NS), dated(2, 0)], [], id="a-clock-set-back"),
        pytest.param([dated(7, 5 * S), dated(8, 5 * S)], [7], id="of-one-moment"),
    ],
)
def test_what_retention_gives_up(found: list[Dated], gone: list[int]) -> None:
    assert [one.offset for one in outdated(found, NOW_NS)] == gone
    assert [one.offset for one in outdated(found[::-1], NOW_NS)] == gone


ages = st.integers(0, 10 * DAY_NS)
found_ones = st.lists(st.tuples(ages, st.booleans()), max_size=40).map(
    lambda pairs: [dated(at, age, permanent=p) for at, (age, p) in enumerate(pairs)]
)


@given(found=found_ones, later_ns=st.integers(0, 10 * DAY_NS))
def test_thinning_again_takes_nothing_and_thinning_often_no_more_than_once(
    found: list[Dated], later_ns: int
) -> None:
    kept = [one for one in found if one not in outdated(found, NOW_NS)]
    assert not outdated(kept, NOW_NS)
    assert len(kept) <= sum(one.permanent for one in found) + 60 + 1 + 24 + 8 + 1
    later = NOW_NS + later_ns
    at_once = [one for one in found if one not in outdated(found, later)]
    in_turn = [one for one in kept if one not in outdated(kept, later)]
    assert {one.offset for one in in_turn} <= {one.offset for one in found}
    assert all(one in in_turn for one in found if one.permanent)
    assert bool(in_turn) == bool(at_once) == bool(found)
