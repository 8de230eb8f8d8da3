from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.horizon import first_needed
from cachemind.core.timeline import History
from cachemind.types import EMPTY, Version


def grown(*targets: int | None) -> History:
    """Return a history: None for an event, else a rollback to that version."""
    history = History.empty()
    for target in targets:
        if target is None:
            history = history.event()
        else:
            history = history.rolled_back(Version(target))
    return history


@pytest.mark.parametrize(
    ("steps", "oldest", "first"),
    [
        pytest.param((None,) * 9, 6, 6, id="a-straight-line"),
        pytest.param((*(None,) * 7, 6, None), 6, 6, id="a-rollback-to-the-base"),
        pytest.param((*(None,) * 7, 2, None), 6, 3, id="a-rollback-past-the-base"),
        pytest.param((*(None,) * 4, 2, *(None,) * 4), 7, 7, id="one-before-the-base"),
        pytest.param((*(None,) * 7, 0, None), 6, 1, id="a-rollback-to-nothing"),
    ],
)
def test_what_is_needed_begins(
    steps: tuple[int | None, ...], oldest: int, first: int
) -> None:
    assert first_needed(grown(*steps), Version(oldest)) == first


@st.composite
def histories(draw: st.DrawFn) -> History:
    history = History.empty()
    for _ in range(draw(st.integers(1, 25))):
        if history.head and draw(st.integers(0, 3)) == 0:
            target = draw(st.integers(0, history.head))
            history = history.rolled_back(Version(target))
        else:
            history = history.event()
    return history


@given(history=histories(), data=st.data())
def test_whatever_a_kept_checkpoint_leads_to_needs_no_row_before_it(
    history: History, data: st.DataObject
) -> None:
    versions = st.integers(1, history.head)
    bases = data.draw(st.sets(versions, min_size=1))
    first = first_needed(history, Version(min(bases)))
    later = history
    for _ in range(data.draw(st.integers(0, 3))):
        # Rollbacks that come after the rows are gone, to what can still be reached.
        reached = [t for t in range(1, later.head + 1) if _base_of(later, bases, t)]
        if reached:
            target = Version(data.draw(st.sampled_from(reached)))
            later = later.rolled_back(target).event()
    for number in range(1, later.head + 1):
        base, target = _base_of(later, bases, number), Version(number)
        if base is None:
            continue
        ancestor = later.common_ancestor(later.head, target)
        spans = (
            *later.path(base, target),
            *later.path(ancestor, later.head),
            *later.path(ancestor, target),
        )
        assert base >= first
        assert all(span.first >= first for span in spans)


def _base_of(history: History, bases: set[int], number: int) -> Version | None:
    """Return the nearest base on the lineage of a version."""
    on_lineage = [
        Version(base)
        for base in bases
        if EMPTY < base <= number
        and not history.is_voided(Version(base), Version(number))
    ]
    return max(on_lineage, default=None)
