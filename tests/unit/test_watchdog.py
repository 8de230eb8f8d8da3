from __future__ import annotations

import pytest

from cachemind.agents.status import CAUGHT_UP_LAG, caught_up
from cachemind.agents.watchdog import Watchdog
from cachemind.types import Offset, Partition

P = Partition(0)
Q = Partition(1)


@pytest.mark.parametrize(
    ("observed", "stuck"),
    [
        pytest.param([(0, 5, 9), (10, 5, 9)], True, id="stands-behind-the-end"),
        pytest.param([(0, 5, 9), (9, 5, 9)], False, id="not-yet-for-long-enough"),
        pytest.param([(0, 5, 9), (10, 6, 99)], False, id="slow-is-not-stuck"),
        pytest.param([(0, 9, 9), (10, 9, 9)], False, id="nothing-to-do"),
        pytest.param([(0, 9, 9), (100, 9, 10)], False, id="new-work-starts-the-clock"),
        pytest.param([(0, 9, 9), (100, 9, 10), (110, 9, 10)], True, id="then-it-runs"),
    ],
)
def test_a_partition_is_stuck_when_it_lags_and_stands(
    observed: list[tuple[int, int, int]], stuck: bool
) -> None:
    dog = Watchdog(patience_s=10)
    found = [
        dog.observe(now, P, Offset(position), Offset(end))
        for now, position, end in observed
    ]
    assert found[-1] is stuck
    assert not any(found[:-1])


def test_a_log_that_was_away_starts_the_clock_again() -> None:
    dog = Watchdog(patience_s=10)
    dog.observe(0, P, Offset(5), Offset(9))
    dog.away(9)
    assert not dog.observe(18, P, Offset(5), Offset(9))
    assert dog.observe(19, P, Offset(5), Offset(9))


def test_one_partition_does_not_excuse_another() -> None:
    dog = Watchdog(patience_s=10)
    dog.observe(0, P, Offset(5), Offset(9))
    dog.observe(0, Q, Offset(5), Offset(9))
    assert not dog.observe(10, Q, Offset(6), Offset(9))
    assert dog.observe(10, P, Offset(5), Offset(9))


@pytest.mark.parametrize(
    ("before", "lag", "after"),
    [
        pytest.param(False, 0, True, id="at-the-end"),
        pytest.param(False, 1, False, id="close-is-not-there"),
        pytest.param(True, 1, True, id="a-little-behind-under-load"),
        pytest.param(True, CAUGHT_UP_LAG + 1, False, id="too-far-behind"),
    ],
)
def test_caught_up_means_having_reached_the_end(
    before: bool, lag: int, after: bool
) -> None:
    assert caught_up(before, Offset(50), Offset(50 + lag)) is after
