from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.guards import GUARDS
from cachemind.core.judge import Candidate, Judgement, judge
from cachemind.types import ExactKey

ON = "How do I turn on Bluetooth?"
OFF = "How do I turn off Bluetooth?"
PARAPHRASE = "How can I turn on Bluetooth?"


def candidate(prompt: str, similarity: float, key: int = 1) -> Candidate:
    return Candidate(
        key=ExactKey(bytes([key]) * 32), prompt=prompt, similarity=similarity
    )


def test_the_closest_candidate_that_passes_is_accepted() -> None:
    far, near = candidate(PARAPHRASE, 0.93, 1), candidate(PARAPHRASE, 0.97, 2)

    assert judge(ON, [far, near], 0.92) == Judgement(accepted=near, reasons=())


@pytest.mark.parametrize(
    ("similarity", "accepted"),
    [(0.92, True), (0.9199, False), (-1.0, False), (1.0, True)],
)
def test_the_threshold_itself_is_enough(similarity: float, accepted: bool) -> None:
    verdict = judge(ON, [candidate(ON, similarity)], 0.92)

    assert (verdict.accepted is not None) == accepted
    assert verdict.reasons == (() if accepted else ("below-threshold",))


def test_more_is_closer_so_unrelated_questions_never_win() -> None:
    """Complaint: read as a distance, the first entry answered every question."""
    unrelated = candidate("What is the boiling point of lead?", 0.02)

    assert judge(ON, [unrelated], 0.92).accepted is None


@pytest.mark.parametrize("similarity", [1.5, 97.0, -2.0, math.nan, math.inf, -math.inf])
def test_a_score_on_another_scale_makes_everything_doubtful(similarity: float) -> None:
    good = candidate(PARAPHRASE, 0.99, 1)

    verdict = judge(ON, [good, candidate(PARAPHRASE, similarity, 2)], 0.92)

    assert verdict == Judgement(accepted=None, reasons=("similarity-scale",))


def test_rounding_above_one_is_no_other_scale() -> None:
    assert judge(ON, [candidate(ON, 1.0004)], 0.92).accepted is not None


@pytest.mark.parametrize("threshold", [math.nan, math.inf, 1.1])
def test_a_threshold_nobody_can_reach_is_a_miss(threshold: float) -> None:
    assert judge(ON, [candidate(ON, 1.0)], threshold).accepted is None


@pytest.mark.parametrize(
    ("prompt", "stored", "reason"),
    [
        pytest.param(ON, OFF, "guard-polarity", id="on-off"),
        pytest.param(
            "How do I enable 2FA?",
            "How do I disable 2FA?",
            "guard-polarity",
            id="enable-disable",
        ),
        pytest.param(
            "Is London larger than Paris?",
            "Is Paris larger than London?",
            "guard-direction",
            id="a-question-and-its-reversal",
        ),
        pytest.param(
            "Who likes Ann, Bob?",
            "Who likes Bob, Ann?",
            "guard-direction",
            id="names-exchanged",
        ),
        pytest.param(
            "What is 15% of 80?",
            "What is 50% of 80?",
            "guard-number",
            id="another-number",
        ),
    ],
)
def test_no_similarity_is_high_enough_to_pass_a_guard(
    prompt: str, stored: str, reason: str
) -> None:
    """Complaints: reversals and on/off pairs score above true paraphrases."""
    verdict = judge(prompt, [candidate(stored, 1.0)], 0.92)

    assert verdict == Judgement(accepted=None, reasons=(reason,))


def test_a_rejected_candidate_does_not_hide_a_good_one() -> None:
    trap, good = candidate(OFF, 0.99, 1), candidate(PARAPHRASE, 0.95, 2)

    assert judge(ON, [trap, good], 0.92) == Judgement(
        accepted=good, reasons=("guard-polarity",)
    )


def test_a_growing_cache_never_turns_a_miss_into_a_wrong_hit() -> None:
    """Complaint: a wrong hit appeared only after more entries existed."""
    wrong = [
        candidate(OFF, 0.99, 1),
        candidate("How do I turn on Bluetooth 5?", 0.98, 2),
        candidate("Why do I turn on Bluetooth?", 0.97, 3),
        candidate("How do I turn on Wifi?", 0.96, 4),
        candidate("How do I not turn on Bluetooth?", 0.95, 5),
    ]

    for size in range(len(wrong) + 1):
        assert judge(ON, wrong[:size], 0.92).accepted is None


def test_prompts_past_the_encoders_window_are_never_compared() -> None:
    """Complaint: prompts with the same first 4,020 characters scored 1.0000."""
    shared = "word " * 804
    one, other = f"{shared} about cats", f"{shared} about dogs"

    assert judge(one, [candidate(other, 1.0)], 0.92) == Judgement(
        accepted=None, reasons=("past-window",)
    )
    assert judge("cats", [candidate(other, 1.0)], 0.92).reasons == ("past-window",)
    assert judge("word " * 256, [candidate("word " * 256, 1.0)], 0.92).accepted


def test_no_candidates_is_a_miss_without_reasons() -> None:
    assert judge(ON, [], 0.92) == Judgement(accepted=None, reasons=())


similarities = st.floats(0.8, 1.0)
candidates = st.lists(
    st.builds(
        candidate,
        st.sampled_from([ON, OFF, PARAPHRASE]),
        similarities,
        st.integers(0, 255),
    ),
    max_size=6,
    unique_by=lambda each: each.key,
)


@given(some=candidates, data=st.data())
def test_the_verdict_does_not_depend_on_the_order_of_candidates(
    some: list[Candidate], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(some))

    one, other = judge(ON, some, 0.92), judge(ON, shuffled, 0.92)

    assert one.reasons == other.reasons
    assert (one.accepted and one.accepted.similarity) == (
        other.accepted and other.accepted.similarity
    )


@given(some=candidates, threshold=st.floats(0.8, 1.0))
def test_an_accepted_candidate_passes_every_check_alone(
    some: list[Candidate], threshold: float
) -> None:
    verdict = judge(ON, some, threshold)
    known = {"below-threshold", *(word for word, _ in GUARDS)}

    assert known.issuperset(verdict.reasons)
    if verdict.accepted is not None:
        assert verdict.accepted.similarity >= threshold
        assert verdict.accepted.prompt != OFF
