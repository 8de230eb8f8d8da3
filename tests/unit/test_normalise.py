from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.normalise import LONGEST_FOLDED_CHARS, normalise


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("  hello \n", "hello", id="outer-white-space"),
        pytest.param("\u00a0hello\u3000", "hello", id="outer-unicode-white-space"),
        pytest.param("a\r\nb\rc", "a\nb\nc", id="line-ends"),
        pytest.param("cafe\u0301", "caf\u00e9", id="nfc"),
        pytest.param("ﬁne", "ﬁne", id="compatibility-forms-stay"),
        pytest.param("how  old   is she", "how old is she", id="runs-of-spaces"),
        pytest.param("10\u00a0000 people", "10 000 people", id="no-break-space"),
        pytest.param("What is it?", "what is it?", id="question-word"),
        pytest.param("What's new?", "what's new?", id="question-word-contracted"),
        pytest.param("What’s new?", "what’s new?", id="question-word-curly"),  # noqa: RUF001
        pytest.param("Really? Is it?", "Really? is it?", id="second-sentence"),
        pytest.param("The Who or the who?", "the Who or the who?", id="only-initial"),
    ],
)
def test_what_means_the_same_is_spelt_the_same(text: str, expected: str) -> None:
    assert normalise(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("Polish my shoes", id="polish-or-Polish"),
        pytest.param("US exports", id="us-or-US"),
        pytest.param("IT is hard", id="it-or-IT"),
        pytest.param("It by Stephen King", id="it-or-It"),
        pytest.param("May is a month", id="may-or-May"),
        pytest.param("Will is a name", id="will-or-Will"),
        pytest.param("Mark is a name", id="mark-or-Mark"),
        pytest.param("WHO guidelines", id="who-or-WHO"),
        pytest.param("Can recorded Tago Mago", id="can-or-Can"),
        pytest.param("A is larger than B", id="a-or-A"),
        pytest.param("The", id="a-lone-word"),
        pytest.param("Is-A relations", id="hyphenated"),
        pytest.param("In.txt is missing", id="a-file-name"),
        pytest.param("Ask Dr. Who is there", id="after-an-abbreviation"),
        pytest.param("Éa is a god", id="another-alphabet"),
    ],
)
def test_a_capital_that_may_carry_meaning_stays(text: str) -> None:
    assert normalise(text) == text


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("if x:\n    return  1", id="python"),
        pytest.param("What does\n  this  do", id="two-lines"),
        pytest.param("is `a  b` one token", id="back-ticks"),
        pytest.param("a\tb  c", id="tabs"),
        pytest.param('is "a  b" one token', id="double-quotes"),
        pytest.param("is 'a  b' one token", id="single-quotes"),
        pytest.param("is “a  b” one token", id="curly-quotes"),
        pytest.param("x =  1; y =  2", id="assignments"),
        pytest.param("grep  -v  foo | wc", id="a-pipe"),
        pytest.param("<b>a  b</b>", id="markup"),
        pytest.param("ls /tmp/a  /tmp/b", id="paths"),
        pytest.param("How many spaces are in a  b", id="a-question-about-spaces"),
        pytest.param("How many capitals are here", id="a-question-about-capitals"),
        pytest.param("Is this sentence correct", id="a-question-about-itself"),
        pytest.param("Repeat after me: This  That", id="to-be-repeated"),
    ],
)
def test_white_space_or_capitals_that_may_carry_meaning_stay(text: str) -> None:
    assert normalise(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("    a\n  b\n", "    a\n  b"),
        ("\n\n    a\n  b", "    a\n  b"),
        (" \n\t\n    a\n\n  b \n", "    a\n\n  b"),
    ],
)
def test_the_first_lines_indentation_stays_among_several_lines(
    text: str, expected: str
) -> None:
    assert normalise(text) == expected


def test_a_long_line_is_left_as_it_is() -> None:
    text = "What is  " + "x" * LONGEST_FOLDED_CHARS

    assert normalise(f" {text} ") == text


MARKS = "? |! |  |\n|\r\n|\r|\t|`|'s |\u0301|e|\u00a0|\u2000|\x1c|\x85|\u2028|ẞ"
fragments = st.sampled_from(
    ["What ", "Is ", "the", "x", " letters ", *MARKS.split("|")]
)
texts = st.text() | st.lists(fragments).map("".join)


@given(text=texts)
def test_normalising_twice_changes_nothing_more(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


@given(text=texts)
def test_nothing_but_white_space_and_initial_capitals_changes(text: str) -> None:
    def skeleton(some: str) -> str:
        composed = unicodedata.normalize("NFC", some)
        return "".join(composed.split()).lower()

    assert skeleton(normalise(text)) == skeleton(text)


@given(text=texts, before=st.text(" \n\r", max_size=3), after=st.text(" \n\t"))
def test_blank_lines_and_spaces_around_a_single_line_are_nothing(
    text: str, before: str, after: str
) -> None:
    line = " ".join(text.split())

    assert normalise(before + line + after) == normalise(line)
