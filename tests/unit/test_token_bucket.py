"""A rate limit: so many at once, so many a second, never more."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.token_bucket import Bucket, Rate

S = 1_000_000_000
RATE = Rate(per_s=2, burst=3)


def test_a_burst_then_the_rate() -> None:
    bucket: Bucket | None = Bucket.full(RATE, 0)
    for _ in range(3):
        assert bucket is not None
        left, bucket = bucket, bucket.taken(RATE, 0)
    assert bucket is not None
    assert bucket.taken(RATE, 0) is None
    assert bucket.taken(RATE, S // 2 - 1) is None
    assert bucket.taken(RATE, S // 2) is not None
    assert left.tokens == 1


def test_the_wait_is_until_it_may_be_taken() -> None:
    empty = Bucket(tokens=0, at_ns=0)
    assert empty.wait_s(RATE, 0) == 0.5
    assert empty.wait_s(RATE, S // 4) == 0.25
    assert empty.wait_s(RATE, S) == 0


def test_a_clock_that_goes_back_gives_nothing() -> None:
    empty = Bucket(tokens=0, at_ns=10 * S)
    assert empty.taken(RATE, 0) is None
    assert empty.at(RATE, 0) == empty


@given(st.lists(st.integers(0, 3 * S), max_size=60))
def test_never_more_than_burst_and_rate(pauses: list[int]) -> None:
    bucket, now, taken = Bucket.full(RATE, 0), 0, 0
    for pause in pauses:
        now += pause
        after = bucket.taken(RATE, now)
        if after is not None:
            bucket, taken = after, taken + 1
    assert taken <= RATE.burst + RATE.per_s * now / S + 1e-6
