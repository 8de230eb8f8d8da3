"""Receipts of one partition follow on from each other, or it is said why not."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.receipt_follow import (
    CHAIN,
    FORK,
    OTHER_LOG,
    SOURCE,
    ChainEnd,
    ReceiptChain,
)
from cachemind.errors import AuditBroken
from cachemind.receipts import NO_LEAF, KeyId, LogId, Receipt, Seq
from cachemind.types import Lsn, Offset, Partition, Sha256, Timeline, WriterId

LOG = LogId("example.org/audit")
ONE = Partition(1)


def leaf_of(receipt: Receipt) -> Sha256:
    return Sha256(sha256(repr(receipt).encode()).digest())


def receipt(seq: int, previous: Sha256, source: int) -> Receipt:
    return Receipt(
        log_id=LOG,
        partition=ONE,
        seq=Seq(seq),
        previous=previous,
        source_topic="wal",
        source=Lsn(ONE, Offset(source)),
        record_hash=NO_LEAF,
        kind="read",
        namespace="alpha",
        timeline=Timeline(0),
        writer=WriterId("w"),
        op_hash=None,
        items=(),
        signed_at_ns=1,
        key_id=KeyId("0" * 16),
    )


def chain_of(count: int) -> list[Receipt]:
    found: list[Receipt] = []
    previous = NO_LEAF
    for seq in range(count):
        found.append(receipt(seq, previous, 3 * seq))
        previous = leaf_of(found[-1])
    return found


def follower() -> ReceiptChain:
    return ReceiptChain(LOG, ONE, "wal")


def taken(chain: ReceiptChain, receipts: list[Receipt]) -> list[bool]:
    return [chain.take(one, leaf_of(one)) for one in receipts]


def test_each_one_names_the_one_before_it() -> None:
    chain, receipts = follower(), chain_of(5)
    assert taken(chain, receipts) == [True] * 5
    assert chain.end == ChainEnd(size=5, leaf=leaf_of(receipts[-1]), source=Offset(12))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param({"seq": Seq(3)}, CHAIN, id="one-was-dropped"),
        pytest.param({"seq": Seq(1)}, FORK, id="a-second-one-of-an-earlier-seq"),
        pytest.param({"previous": NO_LEAF}, CHAIN, id="another-one-before-it"),
        pytest.param({"source": Lsn(ONE, Offset(3))}, SOURCE, id="same-record-twice"),
        pytest.param({"source": Lsn(ONE, Offset(2))}, SOURCE, id="record-before"),
        pytest.param(
            {"source": Lsn(Partition(0), Offset(9))}, SOURCE, id="other-wal-partition"
        ),
        pytest.param({"partition": Partition(0)}, SOURCE, id="other-partition"),
        pytest.param({"source_topic": "other"}, OTHER_LOG, id="other-wal"),
        pytest.param({"log_id": LogId("other")}, OTHER_LOG, id="other-log"),
    ],
)
def test_what_does_not_follow_on_is_refused(
    change: dict[str, Any], reason: str
) -> None:
    chain, receipts = follower(), chain_of(3)
    taken(chain, receipts[:2])
    wrong = replace(receipts[2], **change)
    with pytest.raises(AuditBroken) as refused:
        chain.take(wrong, leaf_of(wrong))
    assert refused.value.reason == reason
    assert taken(chain, receipts[2:]) == [True]


@given(repeats=st.lists(st.integers(0, 9), max_size=10))
def test_what_is_there_already_is_dropped(repeats: list[int]) -> None:
    chain, receipts = follower(), chain_of(10)
    assert all(taken(chain, receipts))
    before = chain.end
    assert not any(taken(chain, [receipts[seq] for seq in repeats]))
    assert chain.end == before


def test_one_that_is_older_than_what_is_known_counts_as_a_fork() -> None:
    receipts = chain_of(4)
    known = ChainEnd(size=2, leaf=None, source=Offset(3))
    chain = ReceiptChain(LOG, ONE, "wal", known)
    with pytest.raises(AuditBroken, match="fork"):
        taken(chain, receipts[:1])
    assert taken(chain, receipts[2:]) == [True, True]
