"""When a cut is due, and that nothing is signed that was not computed twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.cutting import (
    MISMATCH,
    MOST_KEPT,
    GrowingHead,
    LogOfCuts,
    Pace,
    Waiting,
    first_heads,
    is_due,
    next_cut,
)
from cachemind.core.merkle import EMPTY_ROOT, MerkleTree, leaf_hash
from cachemind.errors import AuditBroken
from cachemind.receipts import NO_LEAF, LogId, PartitionHead

S = 1_000_000_000
IDLE = Waiting(receipts=0, since_ns=None, last_cut_ns=100 * S, caught_up=True)


@pytest.mark.parametrize(
    ("waiting", "at_s", "expected"),
    [
        pytest.param(IDLE, 109.9, False, id="silence-for-less-than-ten-seconds"),
        pytest.param(IDLE, 110, True, id="silence-is-evidence-too"),
        pytest.param(replace(IDLE, last_cut_ns=None), 0, True, id="first-of-a-process"),
        pytest.param(
            replace(IDLE, last_cut_ns=None, caught_up=False),
            0,
            False,
            id="first-one-waits-for-what-is-there",
        ),
        pytest.param(
            replace(IDLE, receipts=1, since_ns=100 * S), 100.7, False, id="one-is-new"
        ),
        pytest.param(
            replace(IDLE, receipts=1, since_ns=100 * S), 100.75, True, id="one-waited"
        ),
        pytest.param(
            replace(IDLE, receipts=1023, since_ns=100 * S), 100.1, False, id="1023"
        ),
        pytest.param(
            replace(IDLE, receipts=1024, since_ns=100 * S), 100.1, True, id="1024"
        ),
        pytest.param(
            replace(IDLE, receipts=9999, since_ns=100 * S, caught_up=False),
            100.1,
            False,
            id="a-backlog-goes-by-the-clock",
        ),
        pytest.param(
            replace(IDLE, receipts=9999, since_ns=100 * S, caught_up=False),
            100.8,
            True,
            id="a-backlog-is-cut-too",
        ),
        pytest.param(
            replace(IDLE, receipts=1, since_ns=100 * S, urgent=True),
            100.1,
            True,
            id="a-key-event-is-urgent",
        ),
    ],
)
def test_a_cut_is_due(waiting: Waiting, at_s: float, expected: bool) -> None:
    assert is_due(Pace(), waiting, int(at_s * S)) is expected


def grown(head: GrowingHead, receipts: list[bytes]) -> None:
    for receipt in receipts:
        head.append(receipt, leaf_hash(receipt))


@given(
    batches=st.lists(st.lists(st.binary(max_size=8), max_size=20), max_size=6),
    more=st.integers(0, 3),
)
def test_heads_grow_to_the_root_of_all_receipts(
    batches: list[list[bytes]], more: int
) -> None:
    (empty,) = first_heads(1)
    growing = GrowingHead(empty)
    seen: list[bytes] = []
    for batch in batches:
        grown(growing, batch)
        seen += batch
        head = growing.head()
        tree = MerkleTree()
        tree.extend(map(leaf_hash, seen))
        assert (head.size, head.root) == (len(seen), tree.root())
        grown(growing, [b"while-it-is-written"] * more)
        seen += [b"while-it-is-written"] * more
        growing.rest_on(head)
        assert growing.size == len(seen)


def head_over(*receipts: bytes) -> PartitionHead:
    growing = GrowingHead(first_heads(1)[0])
    grown(growing, list(receipts))
    return growing.head()


def test_a_flipped_bit_in_a_kept_hash_is_found_before_it_is_signed() -> None:
    growing = GrowingHead(head_over(b"a", b"b", b"c"))
    growing.append(b"d", leaf_hash(b"D"))
    with pytest.raises(AuditBroken) as refused:
        growing.head()
    assert refused.value.reason == MISMATCH


def test_a_flipped_bit_in_the_tree_is_found_before_it_is_signed() -> None:
    growing = GrowingHead(head_over(b"a", b"b"))
    grown(growing, [b"c"])
    growing._frontier._nodes[0] = leaf_hash(b"other")
    with pytest.raises(AuditBroken) as refused:
        growing.head()
    assert refused.value.reason == MISMATCH


def test_a_head_whose_root_is_not_that_of_its_frontier_is_no_beginning() -> None:
    with pytest.raises(AuditBroken) as refused:
        GrowingHead(replace(head_over(b"a", b"b", b"c"), root=EMPTY_ROOT))
    assert refused.value.reason == MISMATCH


def test_what_no_cut_covers_for_long_does_not_pile_up() -> None:
    growing = GrowingHead(first_heads(1)[0])
    contents = [b"%d" % number for number in range(2 * MOST_KEPT + 10)]
    grown(growing, contents)
    assert len(growing._since) == 10
    tree = MerkleTree()
    tree.extend(map(leaf_hash, contents))
    assert growing.head().root == tree.root()


def test_a_cut_names_its_place_and_the_leaf_before_it() -> None:
    log = LogOfCuts()
    first = next_cut(LogId("l"), log, first_heads(2), 7)
    assert (first.index, first.previous) == (0, NO_LEAF)
    log.append(b"first")
    second = next_cut(LogId("l"), log, first_heads(2), 8)
    assert (second.index, second.previous) == (1, leaf_hash(b"first"))


@given(leaves=st.lists(st.tuples(st.binary(max_size=5), st.booleans()), max_size=30))
def test_a_checkpoint_names_the_root_of_all_leaves(
    leaves: list[tuple[bytes, bool]],
) -> None:
    log, tree = LogOfCuts(), MerkleTree()
    for leaf, has_checkpoint in leaves:
        tree.append(leaf_hash(leaf))
        if has_checkpoint:
            head = log.head_with(leaf)
            assert (head.size, head.root) == (tree.size, tree.root())
        log.append(leaf)
        if has_checkpoint:
            log.signed()
    assert log.root() == tree.root()


def test_a_flipped_bit_among_the_leaves_of_cuts_is_found_before_it_is_signed() -> None:
    log = LogOfCuts()
    log.append(b"first")
    log.signed()
    log.append(b"key event")
    log._frontier._nodes[0] = leaf_hash(b"other")
    with pytest.raises(AuditBroken) as refused:
        log.head_with(b"cut")
    assert refused.value.reason == MISMATCH
