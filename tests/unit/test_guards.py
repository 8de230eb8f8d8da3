from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.guard_numbers import Quantity
from cachemind.core.guard_words import read
from cachemind.core.guards import GUARDS, blocked_by
from cachemind.core.lexicon import terms

# ---- numbers as they are read --------------------------------------------------------


def found(prompt: str) -> list[tuple[str, str]]:
    return [(each.value, each.unit) for each in read(prompt).quantities]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        pytest.param("no figures at all", [], id="none"),
        pytest.param("room 101", [("101", "")], id="digits"),
        pytest.param("1,000,000 steps", [("1000000", "")], id="thousands"),
        pytest.param("£250,000.50", [("250000.50", "gbp")], id="money"),
        pytest.param("100 dollars", [("100", "usd")], id="unit-behind"),
        pytest.param("10GB or 10 GB", [("10", "gb"), ("10", "gb")], id="unit-attached"),
        pytest.param("15% of 200", [("15", "percent"), ("200", "")], id="percent"),
        pytest.param("fifteen percent", [("15", "percent")], id="words"),
        pytest.param("twenty-five days", [("25", "day")], id="compound"),
        pytest.param(
            "two hundred and fifty thousand", [("250000", "")], id="long-compound"
        ),
        pytest.param("fifteen hundred", [("1500", "")], id="hundreds"),
        pytest.param("one two three", [("1", ""), ("2", ""), ("3", "")], id="a-row"),
        pytest.param("two and two", [("2", ""), ("2", "")], id="and-between"),
        pytest.param("a hundred and more", [("100", "")], id="and-behind"),
        pytest.param("a dozen eggs", [("12", "")], id="dozen"),
        pytest.param("5k or 5 thousand", [("5000", ""), ("5000", "")], id="scale"),
        pytest.param("1.5 million", [("1500000", "")], id="decimal-scale"),
        pytest.param("the 1st and the first", [("1", ""), ("1", "")], id="ordinals"),
        pytest.param("a second per second", [], id="seconds-are-time"),
        pytest.param("the second time", [("2", "")], id="second-of-a-row"),
        pytest.param("World War II or 2", [("2", ""), ("2", "")], id="roman"),
        pytest.param("at 9:15 or 7pm", [("9:15", ""), ("7", "pm")], id="clock"),
        pytest.param("on 2024-01-05", [("2024-01-05", "")], id="date"),
        pytest.param("Python 3.10", [("3.10", "")], id="version"),
        pytest.param("B12 and gpt-4o", [("b12", "code"), ("4o", "code")], id="codes"),
        pytest.param("hundred hundred", [("100", ""), ("100", "")], id="no-power"),
        pytest.param(
            "12345678901234567890 million",
            [("12345678901234567890*1000000", "")],
            id="never-rounded",
        ),
        pytest.param("half an hour", [("0.5", "")], id="half"),
        pytest.param("a 2-bedroom flat", [("2", "")], id="hyphen"),
    ],
)
def test_the_numbers_of_a_prompt(prompt: str, expected: list[tuple[str, str]]) -> None:
    assert found(prompt) == expected


def test_the_word_one_is_a_soft_number() -> None:
    assert read("one or 1").quantities == (
        Quantity("1", "", soft=True),
        Quantity("1", ""),
    )


# ---- what each guard tells apart -----------------------------------------------------

APART = [
    ("guard-number", "What's 15% of 200?", "What's 50% of 200?"),
    ("guard-number", "What is 15% of 200?", "What is 200% of 15?"),
    ("guard-number", "Is room 12 free?", "Is room 112 free?"),
    ("guard-number", "Convert 1,000 USD to GBP", "Convert 100 USD to GBP"),
    ("guard-number", "How many calories are in one egg?", "... in three eggs?"),
    ("guard-number", "Who won in 1998?", "Who won?"),
    ("guard-number", "When did World War I end?", "When did World War II end?"),
    ("guard-number", "What does vitamin B6 do?", "What does vitamin B12 do?"),
    ("guard-number", "What is new in Python 3.1?", "What is new in Python 3.10?"),
    ("guard-number", "Divide 10 by 2", "Divide 2 by 10"),
    ("guard-number", "Who came first?", "Who came third?"),
    ("guard-number", "the double of it", "the triple of it"),
    ("guard-unit", "Remind me at 7am", "Remind me at 7pm"),
    ("guard-unit", "Is 10 MB enough?", "Is 10 GB enough?"),
    ("guard-unit", "How much is $50 in yen?", "How much is €50 in yen?"),
    ("guard-unit", "What is the monthly fee?", "What is the annual fee?"),
    ("guard-date", "Are you open on Saturday?", "Are you open on Sunday?"),
    ("guard-date", "Are you open on Saturday?", "Are you open?"),
    ("guard-date", "Is it free in March?", "Is it free in May?"),
    ("guard-date", "What is on today?", "What is on tomorrow?"),
    ("guard-date", "Open on weekdays?", "Open on weekends?"),
    ("guard-date", "Can I come in the morning?", "Can I come in the evening?"),
    ("guard-negation", "What can be recycled?", "What can't be recycled?"),
    ("guard-negation", "What can be recycled?", "What cant be recycled?"),
    ("guard-negation", "Cancel it", "Don\u2019t cancel it"),
    ("guard-negation", "Travel with a visa", "Travel without a visa"),
    ("guard-negation", "Is it refundable?", "Is it non-refundable?"),
    ("guard-negation", "I always eat meat", "I never eat meat"),
    ("guard-polarity", "How do I turn on Bluetooth?", "How do I turn off Bluetooth?"),
    ("guard-polarity", "How do I enable it?", "How do I disable it?"),
    ("guard-polarity", "How do I upload a file?", "How do I download a file?"),
    ("guard-polarity", "Is tax included?", "Is tax excluded?"),
    ("guard-polarity", "Is it legal?", "Is it illegal?"),
    ("guard-polarity", "How do I subscribe?", "How do I unsubscribe?"),
    ("guard-polarity", "How to encode a URL", "How to decode a URL"),
    ("guard-polarity", "What causes inflation?", "What causes deflation?"),
    ("guard-polarity", "Is sugar harmful?", "Is sugar harmless?"),
    ("guard-polarity", "The best cities", "The worst cities"),
    ("guard-polarity", "How to increase it", "How to reduce it"),
    ("guard-polarity", "Was he employed?", "Was he unemployed?"),
    ("guard-polarity", "Find the maximum", "Find the minimum"),
    ("guard-polarity", "Delete after saving", "Delete before saving"),
    ("guard-name", "Where is it in Austria?", "Where is it in Australia?"),
    ("guard-name", "Does it run on Windows?", "Does it run on Linux?"),
    ("guard-question", "Why was it built?", "When was it built?"),
    ("guard-question", "Why was it built?", "How was it built?"),
    ("guard-direction", "Flights from London to Paris", "Flights from Paris to London"),
    ("guard-direction", "Is Paris bigger than Rome?", "Is Rome bigger than Paris?"),
    ("guard-direction", "Does a dog bite a man?", "Does a man bite a dog?"),
    ("guard-direction", "Is a square a rectangle?", "Is a rectangle a square?"),
    ("guard-direction", "convert USD to GBP", "please convert GBP to USD for me"),
    (
        "guard-direction",
        "Transfer it from my savings to my current account",
        "Transfer it from my current account to my savings",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("word", "one", "other"), APART)
def test_a_difference_is_named_by_its_guard(word: str, one: str, other: str) -> None:
    assert blocked_by(one, other) == word
    assert blocked_by(other, one) == word


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Can I change my name?", "Is it possible to change my name?"),
        ("What's 15% of 200?", "Calculate fifteen percent of 200"),
        ("Which one is better?", "Which is better?"),
        ("1 egg", "one egg"),
        ("What is on in March?", "what's on in march?"),
        ("Is the march over?", "Has the march ended?"),
        ("You may go", "You can go"),
        ("I cannot log in", "I can't log in"),
        ("I dont know it", "I don't know it"),
        ("Is it free or not?", "Is it free?"),
        ("How do I stop worrying?", "How do I avoid worrying?"),
        ("When are you open?", "What are your opening hours?"),
        ("How do I sort a list in Python?", "in Python, how do I sort a list?"),
        ("Why is it so boring?", "Why it is so boring?"),
        ("Compare PHP and Java", "Compare Java and PHP"),
        ("Who is better, Messi or Ronaldo?", "Who is better, Ronaldo or Messi?"),
        ("DELIVERY TO NORTHERN IRELAND?", "Delivery to northern Ireland?"),
        ("Is it OK to bring wine?", "May I bring wine?"),
        ("Trips London to Paris to London", "A tour London to Paris to London"),
        ("Ann's book", "the book of Ann"),
        ("What are the benefits of tea?", "What is good about tea?"),
        ("a 30-day trial on 2 devices", "a trial on 2 devices of 30 days"),
        ("", ""),
    ],
)
def test_the_same_question_in_other_words_passes(one: str, other: str) -> None:
    assert blocked_by(one, other) is None
    assert blocked_by(other, one) is None


def test_there_and_back_is_judged_alike_from_both_sides() -> None:
    one, other = "Trips London to Paris to London", "A tour Paris to London"

    assert blocked_by(one, other) == blocked_by(other, one)


# ---- laws ----------------------------------------------------------------------------

words = st.sampled_from(
    terms(
        "what is not on off to from the 5 5k two hundred and one % £ II Paris Rome may "
        "May enable disable can't 9:15 10GB second monday ' - or why un ful less x"
    )
)
prompts = st.text() | st.lists(words).map(" ".join)


@given(prompt=prompts)
def test_no_guard_tells_a_prompt_from_itself(prompt: str) -> None:
    assert blocked_by(prompt, prompt) is None


@given(one=prompts, other=prompts)
def test_every_guard_is_total_and_symmetric(one: str, other: str) -> None:
    mine, theirs = read(one), read(other)

    for _, differ in GUARDS:
        assert differ(mine, theirs) == differ(theirs, mine)


@pytest.mark.parametrize("word", ["hundred", "trillion", "dozen", "9" * 5_000, "one"])
def test_numbers_without_end_are_no_error(word: str) -> None:
    endless = f"{word} " * 3_000 + "million"

    assert blocked_by(endless, f"{endless} 5") == "guard-number"


@given(one=prompts, other=prompts, number=st.integers(10, 10**9))
def test_another_number_is_always_noticed(one: str, other: str, number: int) -> None:
    assert blocked_by(f"{one} {number}", f"{other} {number + 1}") is not None or (
        str(number + 1) in one and str(number) in other
    )


def test_telling_a_pair_apart_costs_far_less_than_embedding_it() -> None:
    """By the processor's time, and the best of many, since the machine is shared.

    Some 60 microseconds; the limit leaves room for slower machines.
    """
    one = "How do I export all my data from the workspace before I close my account?"
    other = "How can I download all data of my workspace before closing the account?"

    def once() -> int:
        start = time.process_time_ns()
        for _ in range(20):
            blocked_by(one, other)
        return (time.process_time_ns() - start) // 20

    assert min(once() for _ in range(50)) < 300_000
