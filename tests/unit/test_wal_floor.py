from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.wal_floor import Kept, floor_of, refusal
from cachemind.types import Offset, Partition
from cachemind_services.cli.wal import advice_line

P = Partition(3)


def kept(offset: int, *, shipped: bool = True) -> Kept:
    return Kept(offset=Offset(offset), shipped=shipped)


def bounds(first: int, end: int) -> tuple[Offset, Offset]:
    return Offset(first), Offset(end)


@pytest.mark.parametrize(
    ("found", "must_ship", "floor", "why"),
    [
        pytest.param([], False, 10, "no snapshot is retained", id="no-snapshot"),
        pytest.param([kept(49)], False, 50, "3@49", id="below-the-only-one"),
        pytest.param([kept(79), kept(49)], False, 50, "3@49", id="below-the-oldest"),
        pytest.param(
            [kept(49, shipped=False)], True, 10, "shipped yet", id="none-is-shipped"
        ),
        pytest.param(
            [kept(49, shipped=False), kept(79)], True, 50, "3@49", id="one-is-shipped"
        ),
        pytest.param([kept(3)], False, 10, "no snapshot", id="in-front-of-the-log"),
        pytest.param([kept(200)], False, 10, "no snapshot", id="past-the-log"),
        pytest.param([kept(99)], False, 100, "3@99", id="at-the-end"),
    ],
)
def test_the_floor(found: list[Kept], must_ship: bool, floor: int, why: str) -> None:
    advised = floor_of(P, bounds(10, 100), found, must_ship=must_ship)
    assert advised.floor == floor
    assert advised.deletable == floor - 10
    assert why in advised.reason


def test_another_hosts_checkpoint_binds_the_log_and_the_host_is_named() -> None:
    theirs = Kept(offset=Offset(29), shipped=False, holder="box (ab)")
    found = [kept(79), theirs]
    advised = floor_of(P, bounds(10, 100), found, must_ship=False, others={"box (ab)"})
    assert advised.floor == 30
    assert "3@29, held by host box (ab)" in advised.reason


def test_a_host_that_lives_and_keeps_nothing_needs_the_whole_log() -> None:
    gone = Kept(offset=Offset(3), shipped=False, holder="box")
    advised = floor_of(
        P, bounds(10, 100), [kept(79), gone], must_ship=False, others={"box"}
    )
    assert advised.deletable == 0
    assert "host box keeps no checkpoint yet" in advised.reason


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ([kept(49, shipped=False)], "the oldest retained checkpoint is at 3@49"),
        (
            [kept(49, shipped=False), kept(49)],
            "the oldest retained snapshot is at 3@49",
        ),
        (
            [kept(49, shipped=False), kept(79)],
            "the oldest retained checkpoint is at 3@49",
        ),
    ],
    ids=["by-itself", "of-a-snapshot", "below-a-snapshot"],
)
def test_only_what_is_shipped_is_called_a_snapshot(found: list[Kept], why: str) -> None:
    assert floor_of(P, bounds(10, 100), found, must_ship=False).reason == why


@pytest.mark.parametrize(
    ("first", "found", "told"),
    [
        (10, [kept(28)], "holds offsets 10 to 99; the 19 offsets below 29 may be"),
        (28, [kept(28)], "holds offsets 28 to 99; the one offset below 29 may be"),
        (10, [], "holds offsets 10 to 99; none may be deleted: no snapshot is"),
        (100, [], "is empty"),
    ],
)
def test_advice_is_a_sentence(first: int, found: list[Kept], told: str) -> None:
    floor = floor_of(P, bounds(first, 100), found, must_ship=False)
    assert advice_line(floor).startswith(f"partition 3: {told}")


offsets = st.integers(0, 100)


@given(
    found=st.lists(st.builds(kept, offsets, shipped=st.booleans())),
    first=offsets,
    length=offsets,
    must_ship=st.booleans(),
)
def test_no_kept_checkpoint_loses_the_records_after_it(
    found: list[Kept], first: int, length: int, must_ship: bool
) -> None:
    end = first + length
    floor = floor_of(P, bounds(first, end), found, must_ship=must_ship).floor
    assert first <= floor <= end
    for one in found:
        reaches_now = first <= one.offset + 1 <= end
        assert not reaches_now or floor <= one.offset + 1


def test_deleting_above_the_floor_is_refused_with_the_reason() -> None:
    floor = floor_of(P, bounds(0, 100), [kept(49)], must_ship=False)
    assert refusal(floor, Offset(50)) is None
    said = refusal(floor, Offset(51))
    assert said is not None
    assert "from 50 on are needed" in said
    assert "oldest retained snapshot is at 3@49" in said
