from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.timeline import Branch, History, Span
from cachemind.errors import UnknownVersion
from cachemind.types import Timeline, Version


def v(number: int) -> Version:
    return Version(number)


def spans(*pairs: tuple[int, int]) -> tuple[Span, ...]:
    return tuple(Span(v(first), v(last)) for first, last in pairs)


def made(head: int, *branches: tuple[int, int]) -> History:
    return History(tuple(Branch(v(at), v(to)) for at, to in branches), v(head))


POISONED = made(132, (131, 127))
UNDONE = made(132, (131, 127), (132, 130))
TWICE = made(20, (8, 3), (14, 10))


@pytest.mark.parametrize(
    ("history", "version", "expected"),
    [
        pytest.param(made(5), 0, spans(), id="nothing-makes-up-the-empty-state"),
        pytest.param(made(5), 5, spans((1, 5)), id="no-rollback"),
        pytest.param(POISONED, 132, spans((1, 127), (131, 132)), id="rollback"),
        pytest.param(POISONED, 130, spans((1, 130)), id="the-abandoned-tip"),
        pytest.param(UNDONE, 132, spans((1, 130), (132, 132)), id="undo"),
        pytest.param(TWICE, 20, spans((1, 3), (8, 10), (14, 20)), id="nested"),
        pytest.param(made(4, (4, 0)), 4, spans((4, 4)), id="to-the-empty-state"),
    ],
)
def test_lineage(history: History, version: int, expected: tuple[Span, ...]) -> None:
    assert history.lineage(v(version)) == expected


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        pytest.param(POISONED, spans((128, 130)), id="rollback-voids"),
        pytest.param(UNDONE, spans((131, 131)), id="undo-voids-the-rollback"),
        pytest.param(TWICE, spans((4, 7), (11, 13)), id="two"),
        pytest.param(made(9), (), id="none"),
    ],
)
def test_voided(history: History, expected: tuple[Span, ...]) -> None:
    assert history.voided() == expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [(130, 132, 127), (132, 130, 127), (127, 132, 127), (132, 132, 132), (0, 9, 0)],
)
def test_common_ancestor(one: int, other: int, expected: int) -> None:
    assert POISONED.common_ancestor(v(one), v(other)) == expected


def test_undo_goes_to_the_abandoned_tip_and_undo_of_undo_back() -> None:
    assert POISONED.tip_before(v(131)) == 130
    assert UNDONE.tip_before(v(132)) == 131
    assert UNDONE.rolled_back(v(131)).lineage(v(133)) == spans(
        (1, 127), (131, 131), (133, 133)
    )


def test_timeline_is_the_rollback_that_opened_it() -> None:
    assert [POISONED.timeline(v(n)) for n in (0, 130, 131, 132)] == [
        Timeline(0),
        Timeline(0),
        Timeline(131),
        Timeline(131),
    ]


def test_path_leaves_the_ancestor_out() -> None:
    assert POISONED.path(v(120), v(132)) == spans((121, 127), (131, 132))
    assert POISONED.path(v(132), v(132)) == ()
    with pytest.raises(UnknownVersion):
        POISONED.path(v(129), v(132))


@pytest.mark.parametrize("version", [-1, 133])
def test_a_version_that_never_was_is_refused(version: int) -> None:
    for ask in (POISONED.lineage, POISONED.rolled_back, POISONED.timeline):
        with pytest.raises(UnknownVersion):
            ask(v(version))


@st.composite
def histories(draw: st.DrawFn) -> History:
    history = History.empty()
    for target in draw(st.lists(st.none() | st.integers(0, 40), max_size=40)):
        if target is None or target > history.head:
            history = history.event()
        else:
            history = history.rolled_back(v(target))
    return history


def walk(history: History, version: Version) -> list[Version]:
    steps = []
    while version > 0:
        steps.append(version)
        version = history.parent(version)
    return steps[::-1]


@given(history=histories(), data=st.data())
def test_lineage_is_the_walk_over_parents(
    history: History, data: st.DataObject
) -> None:
    version = v(data.draw(st.integers(0, history.head)))
    steps = walk(history, version)
    flat = [
        number
        for span in history.lineage(version)
        for number in range(span.first, span.last + 1)
    ]
    assert flat == steps
    for number in range(1, version + 1):
        assert history.is_voided(v(number), version) == (number not in steps)
    gaps = [n for s in history.voided(version) for n in range(s.first, s.last + 1)]
    assert sorted(flat + gaps) == list(range(1, version + 1))


@given(history=histories(), data=st.data())
def test_common_ancestor_is_the_last_shared_step(
    history: History, data: st.DataObject
) -> None:
    one, other = (v(data.draw(st.integers(0, history.head))) for _ in range(2))
    shared = set(walk(history, one)) & set(walk(history, other))
    assert history.common_ancestor(one, other) == max(shared, default=0)
