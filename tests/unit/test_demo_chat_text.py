from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind_services.demo.chat_sampling import Scored, Token
from cachemind_services.demo.chat_text import deltas


def token(text: bytes) -> Token:
    return Token(Scored(text, -0.5), ())


def said(
    pieces: list[bytes], stop: tuple[str, ...] = (), limit: int = 100
) -> tuple[str, str | None, int]:
    """Return the text, the finish reason and the number of tokens."""
    found = list(deltas((token(piece) for piece in pieces), stop, limit))
    assert all(delta.finish is None for delta in found[:-1])
    return (
        "".join(delta.text for delta in found),
        found[-1].finish,
        sum(len(delta.tokens) for delta in found),
    )


@pytest.mark.parametrize(
    ("pieces", "stop", "limit", "expected"),
    [
        pytest.param([b"a", b"b"], (), 9, ("ab", "stop", 2), id="model-ends-its-turn"),
        pytest.param([b"a", b"b"], (), 2, ("ab", "length", 2), id="limit-reached"),
        pytest.param([b"a", b"b"], (), 1, ("a", "length", 1), id="limit-of-one"),
        pytest.param([], (), 9, ("", "stop", 0), id="nothing-said"),
        pytest.param(
            [b"\xc3", b"\xa4"], (), 9, ("\xe4", "stop", 2), id="character-in-two-tokens"
        ),
        pytest.param(
            [b"a\xc3"], (), 1, ("a�", "length", 1), id="cut-within-a-character"
        ),
        pytest.param(
            [b"one. ", b"two. ", b"three"],
            (". t",),
            9,
            ("one", "stop", 2),
            id="stop-across-tokens",
        ),
        pytest.param([b"a", b"b"], ("ab",), 9, ("", "stop", 2), id="stop-is-all"),
        pytest.param(
            [b"a", b"b"], ("abc",), 9, ("ab", "stop", 2), id="half-a-stop-is-text"
        ),
        pytest.param(
            [b"xaby"], ("b", "ab"), 9, ("x", "stop", 1), id="longest-of-one-end-wins"
        ),
        pytest.param(
            [b"xabc"], ("abc", "b"), 9, ("xa", "stop", 1), id="first-complete-wins"
        ),
        pytest.param([b"ab"], ("b",), 1, ("a", "stop", 1), id="stop-before-length"),
    ],
)
def test_answers_end(
    pieces: list[bytes],
    stop: tuple[str, ...],
    limit: int,
    expected: tuple[str, str, int],
) -> None:
    assert said(pieces, stop, limit) == expected


def test_nothing_that_may_begin_a_stop_string_is_let_out() -> None:
    tokens: Iterator[Token] = iter([token(b"x"), token(b"<"), token(b"end>")])
    pieces = deltas(tokens, ("<end>",), 9)
    assert next(pieces).text == "x"
    last = next(pieces)
    assert (last.text, last.finish) == ("", "stop")


@given(
    text=st.text(alphabet="ab\xe4€\U0001f600", max_size=20),
    cuts=st.lists(st.integers(1, 3), min_size=80, max_size=80),
    stop=st.lists(st.text(alphabet="ab\xe4", min_size=1, max_size=3), max_size=3),
)
def test_how_text_falls_into_tokens_does_not_matter(
    text: str, cuts: list[int], stop: list[str]
) -> None:
    data, pieces, at = text.encode(), [], 0
    for length in cuts:
        pieces.append(data[at : at + length])
        at += length
    whole, finish, _ = said(pieces, tuple(stop))
    found = [(text.find(mark) + len(mark), mark) for mark in stop if mark in text]
    places = [(end, end - len(mark)) for end, mark in found]
    assert whole == (text[: min(places)[1]] if places else text)
    assert finish == "stop"
