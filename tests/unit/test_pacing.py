"""Fetching at once while little comes, and seldom under load."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cachemind.agents.pacing import APART_S, AT_ONCE, Pacing


def fetches_at(gaps_s: list[float]) -> list[float]:
    """Return when each fetch begins; record i comes `gaps_s[i]` after record i - 1."""
    pacing, now_s, arrival_s, begun = Pacing(), 100.0, 100.0, []
    for gap_s in gaps_s:
        arrival_s += gap_s
        now_s = max(now_s + pacing.wait_s(now_s), arrival_s)
        begun.append(now_s)
        pacing.found(now_s)
    return begun


def test_an_event_now_and_then_is_fetched_at_once() -> None:
    gaps_s = [APART_S] * 1000
    assert fetches_at(gaps_s) == [sum(gaps_s[: n + 1], 100.0) for n in range(1000)]


def test_a_burst_after_a_quiet_time_is_fetched_at_once() -> None:
    begun = fetches_at([0.001] * AT_ONCE)
    assert begun[-1] - begun[0] < 0.001 * AT_ONCE + 1e-9


def test_under_load_fetches_are_apart() -> None:
    begun = fetches_at([0.001] * 300)
    assert begun[-1] - begun[100] >= 199 * APART_S * 0.99


def test_the_burst_comes_back_after_a_quiet_time() -> None:
    busy, quiet_s = [0.001] * 100, 2 * AT_ONCE * APART_S
    begun = fetches_at([*busy, quiet_s + 10.0, *[0.001] * (AT_ONCE - 1)])
    again = begun[100:]
    assert again[-1] - again[0] < 0.001 * AT_ONCE + 1e-9


@given(st.lists(st.floats(min_value=0, max_value=1), max_size=200))
def test_no_wait_is_longer_than_one_interval(gaps_s: list[float]) -> None:
    pacing, now_s = Pacing(), 0.0
    for gap_s in gaps_s:
        assert 0.0 <= pacing.wait_s(now_s) <= APART_S
        now_s += gap_s
        pacing.found(now_s)


def test_a_clock_that_stands_still_is_no_error() -> None:
    pacing = Pacing()
    for _ in range(5 * AT_ONCE):
        pacing.found(7.0)
    assert pacing.wait_s(7.0) == APART_S
    assert pacing.wait_s(6.0) == APART_S
