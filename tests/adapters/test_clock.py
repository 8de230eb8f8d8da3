from __future__ import annotations

import time

from cachemind.adapters.clock import ManualClock, SystemClock


def test_the_system_clock_tells_the_time_since_the_epoch() -> None:
    before = time.time_ns()
    now = SystemClock().now_ns()
    assert before <= now <= time.time_ns()


def test_a_manual_clock_stands_still_until_moved_and_may_go_back() -> None:
    clock = ManualClock(1_000)
    assert [clock.now_ns(), clock.now_ns()] == [1_000, 1_000]
    clock.advance(500)
    assert clock.now_ns() == 1_500
    clock.advance(-700)
    assert clock.now_ns() == 800
