from __future__ import annotations

from cachemind.types import Offset
from cachemind_services.gateway.standstill import Standstill


def seen(*looks: tuple[float, int, int]) -> float:
    """Return the standstill at the time of the last of (time, applied, lag)."""
    now = 0.0
    still = Standstill(lambda: now)
    for at, applied, lag in looks:
        now = at
        still.observe(Offset(applied), lag)
    return still.seconds()


def test_a_store_that_is_behind_and_does_not_move_stands_still() -> None:
    assert seen((1.0, 5, 3), (4.0, 5, 9)) == 3.0


def test_a_store_that_moves_does_not_however_far_behind() -> None:
    assert seen((1.0, 5, 3), (4.0, 6, 900)) == 0.0


def test_a_store_with_nothing_to_fold_does_not() -> None:
    assert seen((1.0, 5, 3), (4.0, 5, 0)) == 0.0
    assert seen((1.0, 5, 0), (400.0, 5, 2)) == 0.0
