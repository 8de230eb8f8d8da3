from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.similarity import nearest, unit_rows


def vector(*values: float) -> bytes:
    return np.array(values, dtype="<f2").tobytes()


def found(query: bytes, rows: list[bytes], threshold: float, k: int) -> list[int]:
    matrix = unit_rows(rows, len(query) // 2)
    return [near.row for near in nearest(query, matrix, threshold=threshold, k=k)]


EAST, NORTH, WEST = vector(1, 0), vector(0, 1), vector(-1, 0)
NORTH_EAST = vector(1, 1)


@pytest.mark.parametrize(
    ("rows", "threshold", "k", "expected"),
    [
        pytest.param([NORTH, EAST, NORTH_EAST], -1, 3, [1, 2, 0], id="closest-first"),
        pytest.param([NORTH, EAST, NORTH_EAST], 0.7, 3, [1, 2], id="above-threshold"),
        pytest.param([NORTH, EAST, NORTH_EAST], 0.0, 3, [1, 2, 0], id="at-threshold"),
        pytest.param([NORTH, EAST, NORTH_EAST], -1, 1, [1], id="k-bounds"),
        pytest.param([EAST, EAST, EAST], 0.9, 2, [0, 1], id="tie-falls-to-first-row"),
        pytest.param([WEST, NORTH], 0.5, 9, [], id="opposite-and-unrelated-are-far"),
        pytest.param([], 0.5, 9, [], id="no-rows"),
        pytest.param([vector(0, 0)], 0.01, 9, [], id="a-zero-row-is-close-to-nothing"),
        pytest.param([vector(math.nan, 1)], -0.5, 9, [0], id="a-nan-row-is-a-zero-row"),
        pytest.param([vector(math.inf, 1), EAST], 0.5, 9, [1], id="infinite-row"),
    ],
)
def test_nearest_rows(
    rows: list[bytes], threshold: float, k: int, expected: list[int]
) -> None:
    assert found(EAST, rows, threshold, k) == expected


@pytest.mark.parametrize("query", [vector(0, 0), vector(math.nan, 0)])
def test_a_query_without_direction_finds_nothing(query: bytes) -> None:
    assert found(query, [EAST, NORTH], -1, 9) == []


def test_the_scale_is_cosine_and_more_is_closer() -> None:
    rows = unit_rows([EAST, NORTH_EAST, NORTH, WEST], 2)

    near = nearest(EAST, rows, threshold=-1, k=4)

    assert [(each.row, round(each.similarity, 4)) for each in near] == [
        (0, 1.0),
        (1, 0.7071),
        (2, 0.0),
        (3, -1.0),
    ]


def test_length_does_not_count() -> None:
    rows = unit_rows([vector(100, 0), vector(0.01, 0.01)], 2)

    near = nearest(vector(7, 0), rows, threshold=0.5, k=2)

    assert near[0].similarity == pytest.approx(1.0)
    assert near[1].similarity == pytest.approx(0.70710678, abs=1e-6)


def test_float16_rows_are_taken_as_they_are() -> None:
    rows = unit_rows([NORTH, EAST], 2).astype(np.float16)

    assert [near.row for near in nearest(EAST, rows, threshold=0.9, k=2)] == [1]


def test_vectors_of_another_length_are_a_callers_bug() -> None:
    with pytest.raises(ValueError, match="must be 4 bytes"):
        unit_rows([vector(1, 2, 3)], 2)
    with pytest.raises(ValueError, match="must be 4 bytes"):
        nearest(vector(1, 2, 3), unit_rows([EAST], 2), threshold=0.5, k=1)


values = st.lists(st.floats(-1, 1, width=16), min_size=8, max_size=8)
vectors = values.map(lambda some: vector(*some))


@given(query=vectors, rows=st.lists(vectors, max_size=40), threshold=st.floats(-1, 1))
def test_it_finds_what_plain_arithmetic_finds(
    query: bytes, rows: list[bytes], threshold: float
) -> None:
    def cosine(one: bytes, other: bytes) -> float:
        a, b = (np.frombuffer(each, "<f2").astype(float) for each in (one, other))
        length = float(np.linalg.norm(a) * np.linalg.norm(b))
        return float(a @ b) / length if length else 0.0

    near = nearest(query, unit_rows(rows, 8), threshold=threshold, k=len(rows) or 1)
    similarities = {each.row: each.similarity for each in near}

    if not any(np.frombuffer(query, "<f2")):
        assert near == []
        return
    for row, other in enumerate(rows):
        expected = cosine(query, other)
        if row in similarities:
            assert similarities[row] == pytest.approx(expected, abs=1e-5)
        else:
            assert expected < threshold + 1e-5
    assert sorted(similarities.values(), reverse=True) == list(similarities.values())


@given(
    query=vectors,
    rows=st.lists(vectors, min_size=1, max_size=20),
    more=st.lists(vectors, max_size=20),
)
def test_a_growing_cache_does_not_move_what_was_there(
    query: bytes, rows: list[bytes], more: list[bytes]
) -> None:
    """A wrong hit that appears only once other entries exist must be a closer one."""
    before = nearest(query, unit_rows(rows, 8), threshold=0.5, k=100)
    after = nearest(query, unit_rows(rows + more, 8), threshold=0.5, k=100)

    assert [near for near in after if near.row < len(rows)] == before


def test_a_row_reaches_a_threshold_equal_to_its_own_similarity() -> None:
    """Whatever the matrix product rounds to; 500 vectors as an encoder makes them."""
    random = np.random.default_rng(7)
    drawn = random.normal(size=(500, 384)).astype("<f2")
    rows = unit_rows([row.tobytes() for row in drawn], 384)
    query = (drawn[0] + drawn[1]).tobytes()

    for near in nearest(query, rows, threshold=-1, k=500):
        again = nearest(query, rows, threshold=near.similarity, k=500)
        assert near in again
