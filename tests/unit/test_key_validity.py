"""Which key may sign what, against a reading of the rules that looks at everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cachemind.core.key_validity import (
    NO_CUT,
    KeyHistory,
    Sizes,
    Verdict,
    revocations,
)
from cachemind.receipts import KeyChange, KeyEvent, KeyId, KeyRole, LogId
from cachemind.types import Principal

A, B, LOG = (KeyId(digit * 16) for digit in "abc")
ADD, RETIRE, REVOKE = KeyChange.ADD, KeyChange.RETIRE, KeyChange.REVOKE


@dataclass(frozen=True)
class Heads:
    """A cut among the leaves."""

    sizes: Sizes


Leaf = Heads | KeyEvent


def change(
    what: KeyChange, key: KeyId, last: int = NO_CUT, role: KeyRole | None = None
) -> KeyEvent:
    return KeyEvent(
        log_id=LogId("example/log"),
        change=what,
        role=role or (KeyRole.LOG if key == LOG else KeyRole.RECEIPT),
        key_id=key,
        public_key=key.encode(),
        last_good_cut=last,
        at_ns=0,
        principal=Principal("operator"),
        reason="",
    )


def told(leaves: Sequence[Leaf], *, foreseen: bool = True) -> KeyHistory:
    events = [leaf for leaf in leaves if isinstance(leaf, KeyEvent)]
    history = KeyHistory(revocations(events) if foreseen else None)
    for index, leaf in enumerate(leaves):
        if isinstance(leaf, Heads):
            history.add_cut(index, leaf.sizes)
        else:
            history.add_event(index, leaf)
    return history


ROTATED: list[Leaf] = [
    change(ADD, A),
    Heads((3, 0)),
    change(ADD, B),
    Heads((5, 2)),
    change(RETIRE, A),
    Heads((8, 4)),
    Heads((9, 9)),
]
REVOKED: list[Leaf] = [
    change(ADD, A),
    Heads((2, 0)),
    Heads((4, 1)),
    Heads((6, 1)),
    change(REVOKE, A, last=2),
]


@pytest.mark.parametrize(
    ("leaves", "key", "partition", "seq", "expected"),
    [
        pytest.param(ROTATED, A, 0, 0, Verdict.VALID, id="first-key-from-the-first"),
        pytest.param(ROTATED, B, 0, 2, Verdict.NOT_YET, id="before-cut-before-add"),
        pytest.param(ROTATED, B, 0, 3, Verdict.VALID, id="from-cut-before-add"),
        pytest.param(ROTATED, B, 1, 0, Verdict.VALID, id="each-partition-its-own"),
        pytest.param(ROTATED, A, 0, 7, Verdict.VALID, id="up-to-first-cut-after-end"),
        pytest.param(ROTATED, A, 0, 8, Verdict.RETIRED, id="not-past-it"),
        pytest.param(ROTATED, A, 1, 4, Verdict.RETIRED, id="nor-elsewhere"),
        pytest.param(ROTATED, B, 7, 0, Verdict.VALID, id="a-partition-no-cut-names"),
        pytest.param(ROTATED[:5], A, 0, 99, Verdict.VALID, id="no-cut-after-end-yet"),
        pytest.param(ROTATED, LOG, 0, 0, Verdict.UNKNOWN, id="never-added"),
        pytest.param(REVOKED, A, 0, 3, Verdict.VALID, id="under-last-good-cut"),
        pytest.param(REVOKED, A, 0, 4, Verdict.REVOKED, id="beyond-last-good-cut"),
        pytest.param(
            [change(ADD, A), Heads((2,)), change(REVOKE, A)],
            A,
            0,
            0,
            Verdict.REVOKED,
            id="nothing-was-ever-good",
        ),
        pytest.param(
            [change(ADD, LOG)], LOG, 0, 0, Verdict.WRONG_ROLE, id="log-key-on-receipt"
        ),
        pytest.param(
            [change(ADD, A, role=KeyRole.ROOT)],
            A,
            0,
            0,
            Verdict.UNKNOWN,
            id="root-keys-are-not-logged",
        ),
    ],
)
def test_a_key_may_sign_a_receipt(
    leaves: Sequence[Leaf], key: KeyId, partition: int, seq: int, expected: Verdict
) -> None:
    assert told(leaves).receipt(key, partition, seq) is expected


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        pytest.param(0, Verdict.NOT_YET, id="before-its-addition"),
        pytest.param(2, Verdict.VALID, id="after-its-addition"),
        pytest.param(4, Verdict.RETIRED, id="after-its-retirement"),
    ],
)
def test_a_log_key_signs_the_cuts_between_its_events(
    index: int, expected: Verdict
) -> None:
    leaves: list[Leaf] = [
        Heads(()),
        change(ADD, LOG),
        Heads((1,)),
        change(RETIRE, LOG),
        Heads((2,)),
    ]
    assert told(leaves).cut(LOG, index) is expected


def test_a_revoked_log_key_counts_up_to_its_last_good_cut() -> None:
    leaves: list[Leaf] = [
        change(ADD, LOG),
        Heads(()),
        Heads(()),
        change(REVOKE, LOG, last=1),
    ]
    history = told(leaves)
    assert history.cut(LOG, 1) is Verdict.VALID
    assert history.cut(LOG, 2) is Verdict.REVOKED


def test_a_receipt_key_signs_no_cut() -> None:
    assert told([change(ADD, A)]).cut(A, 1) is Verdict.WRONG_ROLE


def test_a_revocation_that_comes_unforeseen_leaves_no_receipt() -> None:
    assert told(REVOKED, foreseen=False).receipt(A, 0, 0) is Verdict.REVOKED


def test_a_foreseen_revocation_holds_before_it_is_told() -> None:
    history = told([*REVOKED[:3], Heads((6, 1))])
    early = KeyHistory(revocations([change(REVOKE, A, last=2)]))
    for index, leaf in enumerate(REVOKED[:3]):
        if isinstance(leaf, Heads):
            early.add_cut(index, leaf.sizes)
        else:
            early.add_event(index, leaf)
    assert history.receipt(A, 0, 5) is Verdict.VALID
    assert early.receipt(A, 0, 5) is Verdict.REVOKED
    assert early.receipt(A, 0, 3) is Verdict.VALID


def test_signers_are_the_newest_first_without_those_that_ended() -> None:
    history = told([change(ADD, A), change(ADD, B), change(ADD, LOG)])
    assert [one.key_id for one in history.signers(KeyRole.RECEIPT)] == [B, A]
    history.add_event(3, change(RETIRE, A))
    assert [one.key_id for one in history.signers(KeyRole.RECEIPT)] == [B]
    history.add_event(4, change(REVOKE, B))
    assert history.signers(KeyRole.RECEIPT) == ()
    assert [one.key_id for one in history.signers(KeyRole.LOG)] == [LOG]


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(change(ADD, A), id="added-twice"),
        pytest.param(change(RETIRE, B), id="retired-but-never-added"),
        pytest.param(change(RETIRE, A, role=KeyRole.LOG), id="of-another-role"),
        pytest.param(change(ADD, B, role=KeyRole.ROOT), id="a-root-key"),
    ],
)
def test_an_event_that_fits_no_key_changes_nothing(event: KeyEvent) -> None:
    history = told([change(ADD, A)])
    before = history.tenures()
    assert not history.add_event(1, event)
    assert history.tenures() == before


# ---- the rules, read once more, over all leaves at once ------------------------------


@st.composite
def logs(draw: st.DrawFn) -> list[Leaf]:
    leaves: list[Leaf] = []
    sizes = [0, 0]
    for index in range(draw(st.integers(0, 12))):
        if draw(st.booleans()):
            sizes = [size + draw(st.integers(0, 3)) for size in sizes]
            leaves.append(Heads(tuple(sizes)))
        else:
            what = draw(st.sampled_from(list(KeyChange)))
            last = draw(st.integers(-1, index)) if what is REVOKE else NO_CUT
            leaves.append(change(what, draw(st.sampled_from([A, B])), last))
    return leaves


def sizes_before(leaves: Sequence[Leaf], index: int) -> Sizes:
    cuts = [leaf.sizes for leaf in leaves[:index] if isinstance(leaf, Heads)]
    return cuts[-1] if cuts else (0, 0)


def naive(leaves: Sequence[Leaf], key: KeyId, partition: int, seq: int) -> bool:
    """Return whether `key` may sign, by the definition alone."""
    about = [
        (index, leaf)
        for index, leaf in enumerate(leaves)
        if isinstance(leaf, KeyEvent) and leaf.key_id == key
    ]
    added = next((index for index, leaf in about if leaf.change is ADD), None)
    if added is None or seq < sizes_before(leaves, added)[partition]:
        return False
    for index, leaf in about:
        if leaf.change is REVOKE and (
            seq >= sizes_before(leaves, leaf.last_good_cut + 1)[partition]
        ):
            return False
        if leaf.change is RETIRE and index > added:
            later = [one.sizes for one in leaves[index:] if isinstance(one, Heads)]
            if later and seq >= later[0][partition]:
                return False
    return True


@example(leaves=[change(ADD, A), change(REVOKE, A, 1)], partition=0, seq=5)
@given(leaves=logs(), partition=st.integers(0, 1), seq=st.integers(0, 40))
def test_the_history_says_what_the_rules_say(
    leaves: list[Leaf], partition: int, seq: int
) -> None:
    history = told(leaves)
    for key in (A, B):
        found = history.receipt(key, partition, seq)
        assert (found is Verdict.VALID) == naive(leaves, key, partition, seq)


@given(leaves=logs(), more=logs(), seq=st.integers(0, 40))
def test_what_comes_after_changes_no_answer_below_the_last_cut(
    leaves: list[Leaf], more: list[Leaf], seq: int
) -> None:
    later = [leaf for leaf in more if isinstance(leaf, Heads)]
    grown = [*leaves, *(Heads(tuple(50 + size for size in c.sizes)) for c in later)]
    history, longer = told(leaves), told(grown)
    covered = sizes_before(leaves, len(leaves))
    for partition in (0, 1):
        if seq < covered[partition]:
            for key in (A, B):
                assert history.receipt(key, partition, seq) is longer.receipt(
                    key, partition, seq
                )
