"""What may go, how much at once, and by which time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.collecting import (
    CollectRules,
    Held,
    LogClock,
    collected,
    may_go,
    start_s,
)
from cachemind.types import ExactKey
from tests.fold_cases import key

RULES = CollectRules(grace_ns=100)
S = 1_000_000_000


def held(word: str = "p", expires: int = 0, *, pinned: bool = False) -> Held:
    return Held(key(word), expires, pinned, 1_000)


@pytest.mark.parametrize(
    ("entry", "now_ns", "goes"),
    [
        pytest.param(held(expires=1000), 999, False, id="lives"),
        pytest.param(held(expires=1000), 1000, False, id="expires"),
        pytest.param(held(expires=1000), 1099, False, id="within-the-grace-period"),
        pytest.param(held(expires=1000), 1100, True, id="after-it"),
        pytest.param(held(expires=1000, pinned=True), 9999, False, id="pinned"),
        pytest.param(held(expires=2**63 - 1), 2**63 - 1, False, id="for-ever"),
    ],
)
def test_what_may_go(entry: Held, now_ns: int, goes: bool) -> None:
    assert may_go(entry, now_ns, RULES) is goes


entries = st.lists(
    st.builds(
        Held,
        st.binary(min_size=32, max_size=32).map(ExactKey),
        st.integers(0, 50),
        st.booleans(),
        st.integers(1, 40),
    ),
    unique_by=lambda one: one.exact_key,
    max_size=40,
).map(sorted)
rules = st.builds(
    CollectRules,
    grace_ns=st.integers(0, 10),
    most_keys=st.integers(1, 5),
    most_bytes=st.integers(1, 60),
    most_looked=st.integers(1, 12),
)


def steps(entries: list[Held], now_ns: int, rules: CollectRules) -> list[list[Held]]:
    """Return what each step takes, until a step finds the end."""
    found, left = [], entries
    while True:
        step = collected(iter(left), now_ns, rules)
        found.append([one for one in left if one.exact_key in step.keys])
        if step.after is None:
            return found
        left = [one for one in left if one.exact_key > step.after]


@given(entries=entries, rules=rules, now_ns=st.integers(0, 70))
def test_the_steps_of_a_sweep_take_all_that_may_go_and_nothing_else(
    entries: list[Held], rules: CollectRules, now_ns: int
) -> None:
    gone = [one for step in steps(entries, now_ns, rules) for one in step]
    assert gone == [one for one in entries if may_go(one, now_ns, rules)]
    assert not any(one.pinned for one in gone)
    assert all(one.expires_at_ns + rules.grace_ns <= now_ns for one in gone)
    # What is left is nothing for a second sweep.
    left = [one for one in entries if one not in gone]
    assert steps(left, now_ns, rules) == [[] for _ in steps(left, now_ns, rules)]


@given(entries=entries, rules=rules, now_ns=st.integers(0, 70))
def test_each_step_is_bounded(
    entries: list[Held], rules: CollectRules, now_ns: int
) -> None:
    for step in steps(entries, now_ns, rules):
        assert len(step) <= rules.most_keys
        # The last one may be larger than all of them may be together.
        assert sum(one.size_bytes for one in step[:-1]) < rules.most_bytes


def test_a_step_looks_at_no_more_than_it_may() -> None:
    few = CollectRules(grace_ns=0, most_looked=3)
    endless = (held(str(number), 2**62) for number in range(10**5))
    assert collected(endless, 0, few) == ((), key("2"))


@pytest.mark.parametrize(
    ("interval_s", "grace_s", "waits_s"),
    [
        pytest.param(60, 600, 600, id="a-clock-has-time-to-be-put-right"),
        pytest.param(60, 10**9, 600, id="not-for-ever"),
        pytest.param(3_600, 1, 3_600, id="no-sooner-than-later-sweeps"),
        pytest.param(1, 0, 1, id="no-grace"),
    ],
)
def test_a_collector_waits_before_its_first_sweep(
    interval_s: int, grace_s: int, waits_s: int
) -> None:
    assert start_s(interval_s, grace_s) == waits_s


# ---- the time -----------------------------------------------------------------------

PATIENCE = 600 * S
BEGUN = LogClock(told_ns=1_000_000 * S, at_ns=5 * S)


def told(*looks: tuple[int, int]) -> int:
    """Return the time by the log after looks at (newest event, clock), in seconds.

    Both are since the beginning.
    """
    clock = BEGUN
    for newest_s, at_s in looks:
        clock = clock.later(
            BEGUN.told_ns + newest_s * S, BEGUN.at_ns + at_s * S, PATIENCE
        )
    return (clock.told_ns - BEGUN.told_ns) // S


YEAR = 365 * 86_400


@pytest.mark.parametrize(
    ("looks", "then"),
    [
        pytest.param([(0, 60)], 60, id="nothing-is-written"),
        pytest.param([(50, 60)], 60, id="events-are-a-little-late"),
        pytest.param([(100, 60)], 100, id="events-are-a-little-ahead"),
        pytest.param([(0, 60), (0, 50)], 60, id="never-back"),
        pytest.param([(YEAR, 60)], 60, id="a-jump"),
        pytest.param([(YEAR, 60), (YEAR, 659)], 659, id="a-jump-that-is-doubted"),
        pytest.param([(YEAR, 60), (YEAR, 660)], YEAR, id="a-jump-that-stands"),
        pytest.param(
            [(YEAR, 60), (70, 70), (YEAR, 80), (YEAR, 660)],
            660,
            id="a-jump-that-was-mended-begins-anew",
        ),
    ],
)
def test_the_time_by_the_log(looks: list[tuple[int, int]], then: int) -> None:
    assert told(*looks) == then


@given(
    looks=st.lists(
        st.tuples(st.integers(-YEAR, YEAR), st.integers(0, 2_000)), max_size=20
    )
)
def test_the_time_by_the_log_is_never_ahead_of_both_events_and_elapsed_time(
    looks: list[tuple[int, int]],
) -> None:
    clock, at_s, newest_seen, before = BEGUN, 0, 0, BEGUN.told_ns
    for newest_s, later_s in looks:
        at_s += later_s
        newest_seen = max(newest_seen, newest_s)
        clock = clock.later(
            BEGUN.told_ns + newest_s * S, BEGUN.at_ns + at_s * S, PATIENCE
        )
        assert before <= clock.told_ns
        assert clock.told_ns <= BEGUN.told_ns + (newest_seen + at_s) * S
        before = clock.told_ns
