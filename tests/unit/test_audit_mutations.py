"""Every way of damaging the golden dump by hand: each is found, by its right name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachemind.codec.cuts import decode_cuts_record, decode_leaf
from cachemind.codec.receipts import decode_signed_receipt
from cachemind.core.audit_findings import Finding, Outcome, Reason, Severity
from cachemind.core.audit_notes import CutNote
from cachemind.receipts import Cut
from tests.audit_checks import outcome, problems, verified
from tests.audit_dump import Dump, lines_of
from tests.vectors.make_audit_dump import DUMP, PINNED_CUT, build

HEADER_BYTES = 10
MAGIC_BYTES = 2
SAMPLED = 13
"""In the quick run one byte in so many is changed; coprime to the lengths in it."""

DUMPED = build()
PARTITIONS = range(len(DUMPED.receipts))
RECEIPTS = [
    pytest.param(partition, seq, id=f"{partition}-{seq}")
    for partition in PARTITIONS
    for seq in range(len(DUMPED.receipts[partition]))
]
LEAVES = range(len(DUMPED.cuts))
PAST = Reason.CUT_CHAIN, Reason.CHECKPOINT_ROOT


@cache
def pin() -> CutNote:
    return CutNote.parse(PINNED_CUT.read_text(encoding="utf-8"))


def changed(values: Sequence[bytes], at: int, value: bytes) -> tuple[bytes, ...]:
    return (*values[:at], value, *values[at + 1 :])


def without(values: Sequence[bytes], at: int) -> tuple[bytes, ...]:
    return (*values[:at], *values[at + 1 :])


def doubled(values: Sequence[bytes], at: int) -> tuple[bytes, ...]:
    return (*values[: at + 1], *values[at:])


def swapped(values: Sequence[bytes], at: int) -> tuple[bytes, ...]:
    return (*values[:at], values[at + 1], values[at], *values[at + 2 :])


def only(findings: Sequence[Finding]) -> Finding:
    """Return the one finding: one fault is told once."""
    assert len(findings) == 1, [(one.reason, str(one.place)) for one in findings]
    return findings[0]


# ---- untouched -----------------------------------------------------------------------


def test_the_committed_dump_is_what_its_script_makes() -> None:
    assert DUMP.read_text(encoding="utf-8") == "".join(lines_of(DUMPED))


def test_the_untouched_dump_verifies_with_its_wal() -> None:
    findings, summary = verified(DUMPED, wal_from=0)
    assert {one.severity for one in findings} == {Severity.NOTE}
    reasons = {one.reason for one in findings}
    unseen = {Reason.TAIL_UNKNOWABLE, Reason.RESIGNING_UNKNOWABLE}
    assert reasons == {Reason.VOIDED} | unseen
    assert summary.receipts == dict(enumerate(map(len, DUMPED.receipts)))
    assert summary.covered == summary.receipts


def test_with_a_pinned_cut_nothing_up_to_it_can_have_been_signed_anew() -> None:
    findings, summary = verified(DUMPED, pins=[pin()])
    assert [one.reason for one in findings] == [Reason.TAIL_UNKNOWABLE]
    assert summary.seen_elsewhere == summary.last_cut


# ---- every byte ----------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """Some bytes of a record, and by which names a change in them may be found."""

    end: int
    reasons: frozenset[Reason]


def part(end: int, *reasons: Reason) -> Part:
    return Part(end, frozenset(reasons))


def parts_of_receipt(value: bytes) -> Iterator[Part]:
    signed = decode_signed_receipt(value)
    start = value.index(signed.receipt)
    end = start + len(signed.receipt)
    yield part(MAGIC_BYTES, Reason.UNDECODABLE)
    yield part(HEADER_BYTES, Reason.UNKNOWN_SCHEMA)
    yield part(start, Reason.UNDECODABLE)
    yield part(end, Reason.SIGNATURE)
    key_end = len(value) - len(signed.signature.value)
    yield part(key_end, Reason.KEY_NAMES_DIFFER, Reason.UNDECODABLE)
    yield part(len(value), Reason.SIGNATURE)


def parts_of_cuts_record(value: bytes) -> Iterator[Part]:
    record = decode_cuts_record(value)
    start = value.index(record.leaf)
    end = start + len(record.leaf)
    text = end + 2 if record.checkpoint else end + 1
    yield part(MAGIC_BYTES, Reason.UNDECODABLE)
    yield part(HEADER_BYTES, Reason.UNKNOWN_SCHEMA)
    yield part(start, Reason.UNDECODABLE)
    yield part(start + MAGIC_BYTES, Reason.UNDECODABLE)
    yield part(start + HEADER_BYTES, Reason.UNKNOWN_SCHEMA)
    if isinstance(decode_leaf(record.leaf), Cut):
        yield part(
            end,
            Reason.UNDECODABLE,
            Reason.OTHER_LOG,
            Reason.CHECKPOINT_OF_OTHER_CUT,
            *PAST,
        )
    else:
        # A revocation needs no signature of its key: there the next cut shows it.
        yield part(end, Reason.UNDECODABLE, Reason.KEY_EVENT_UNSIGNED, *PAST)
    yield part(text, Reason.UNDECODABLE)
    yield part(
        len(value),
        Reason.UNDECODABLE,
        Reason.CHECKPOINT_MALFORMED,
        Reason.CHECKPOINT_OF_OTHER_CUT,
        Reason.CHECKPOINT_ROOT,
        Reason.CHECKPOINT_SIGNATURE,
        Reason.CHECKPOINT_UNSIGNED,
    )


def flipped(value: bytes, at: int, mask: int) -> bytes:
    return value[:at] + bytes([value[at] ^ mask]) + value[at + 1 :]


def allowed(parts: Sequence[Part], at: int) -> frozenset[Reason]:
    return next(one.reasons for one in parts if at < one.end)


def change_receipt(partition: int, seq: int, at: int, mask: int) -> None:
    values = DUMPED.receipts[partition]
    parts = list(parts_of_receipt(values[seq]))
    damaged = changed(values, seq, flipped(values[seq], at, mask))
    found = problems(DUMPED.with_receipts(partition, damaged))
    assert found, f"byte {at} of receipt {partition}/{seq}"
    place = found[0].place
    assert (place.partition, place.seq) == (partition, seq) or mask_moves(found[0])
    assert found[0].reason in allowed(parts, at), f"byte {at}: {found[0]}"
    assert len(found) == 1


def mask_moves(finding: Finding) -> bool:
    """Return whether the place told is what the changed record says of itself."""
    return finding.reason is Reason.SIGNATURE


def change_leaf(index: int, at: int, mask: int) -> None:
    values = DUMPED.cuts
    parts = list(parts_of_cuts_record(values[index]))
    damaged = changed(values, index, flipped(values[index], at, mask))
    found = problems(DUMPED.with_cuts(damaged))
    assert found, f"byte {at} of leaf {index}"
    assert found[0].reason in allowed(parts, at), f"byte {at}: {found[0]}"


def every_byte(mask: int, step: int) -> None:
    count = 0
    for partition in PARTITIONS:
        for seq, value in enumerate(DUMPED.receipts[partition]):
            for at in range(len(value)):
                count += 1
                if count % step == 0:
                    change_receipt(partition, seq, at, mask)
    for index, value in enumerate(DUMPED.cuts):
        for at in range(len(value)):
            count += 1
            if count % step == 0:
                change_leaf(index, at, mask)


def test_a_changed_byte_is_found() -> None:
    every_byte(0x01, SAMPLED)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mask", [0x01, 0x80])
def test_every_changed_byte_is_found(mask: int) -> None:
    every_byte(mask, 1)


# ---- whole receipts ------------------------------------------------------------------


@pytest.mark.parametrize(("partition", "seq"), RECEIPTS)
def test_a_receipt_that_was_deleted_is_missed(partition: int, seq: int) -> None:
    values = DUMPED.receipts[partition]
    found = only(problems(DUMPED.with_receipts(partition, without(values, seq))))
    last = len(values) - 1
    expected = {0: Reason.HEAD_MISSING, last: Reason.TAIL_MISSING}
    assert found.reason is expected.get(seq, Reason.MISSING)
    assert (found.place.partition, found.place.seq) == (partition, seq)


@pytest.mark.parametrize(("partition", "seq"), RECEIPTS)
def test_a_receipt_that_is_there_twice_is_told(partition: int, seq: int) -> None:
    values = doubled(DUMPED.receipts[partition], seq)
    found = only(problems(DUMPED.with_receipts(partition, values)))
    assert found.reason is Reason.DUPLICATE
    assert (found.place.partition, found.place.seq) == (partition, seq)


@pytest.mark.parametrize(("partition", "seq"), RECEIPTS)
def test_receipts_that_were_swapped_are_told(partition: int, seq: int) -> None:
    values = DUMPED.receipts[partition]
    if seq + 1 == len(values):
        return
    found = only(problems(DUMPED.with_receipts(partition, swapped(values, seq))))
    assert found.reason is Reason.REORDERED
    assert (found.place.partition, found.place.seq) == (partition, seq + 1)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_a_head_that_was_cut_off_is_missed(partition: int) -> None:
    values = DUMPED.receipts[partition]
    for count in range(1, len(values)):
        found = only(problems(DUMPED.with_receipts(partition, values[count:])))
        assert found.reason is Reason.HEAD_MISSING
        assert found.place.seq == 0


@pytest.mark.parametrize("partition", PARTITIONS)
def test_a_tail_that_was_cut_off_is_missed_where_a_cut_covers_it(
    partition: int,
) -> None:
    values = DUMPED.receipts[partition]
    for count in range(1, len(values)):
        found = only(problems(DUMPED.with_receipts(partition, values[:count])))
        assert found.reason is Reason.TAIL_MISSING
        assert found.place.seq == count


@pytest.mark.parametrize("partition", PARTITIONS)
def test_a_partition_that_was_removed_is_missed(partition: int) -> None:
    found = only(problems(DUMPED.with_receipts(partition, ())))
    assert found.reason is Reason.PARTITION_MISSING
    assert found.place.partition == partition


@pytest.mark.parametrize("partition", PARTITIONS)
def test_a_receipt_of_another_partition_is_told(partition: int) -> None:
    other = DUMPED.receipts[(partition + 1) % len(DUMPED.receipts)]
    values = DUMPED.receipts[partition]
    found = problems(DUMPED.with_receipts(partition, (other[0], *values)))
    assert Reason.OTHER_PARTITION in {one.reason for one in found}


def test_bytes_that_are_no_receipt_are_told_wherever_they_are() -> None:
    for partition in PARTITIONS:
        values = DUMPED.receipts[partition]
        for seq in range(len(values) + 1):
            inserted = (*values[:seq], b"nothing", *values[seq:])
            found = only(problems(DUMPED.with_receipts(partition, inserted)))
            assert found.reason is Reason.UNDECODABLE
            assert (found.place.partition, found.place.seq) == (partition, seq)


# ---- whole leaves --------------------------------------------------------------------


@pytest.mark.parametrize("index", LEAVES)
def test_a_leaf_that_was_deleted_is_missed(index: int) -> None:
    found = problems(DUMPED.with_cuts(without(DUMPED.cuts, index)))
    if index == LEAVES[-1]:
        assert found == []  # A cut tail: see below.
        return
    assert found[0].reason is Reason.CUT_MISSING
    assert found[0].place.index == next_cut(index + 1)


@pytest.mark.parametrize("index", LEAVES)
def test_a_leaf_that_is_there_twice_is_told(index: int) -> None:
    found = only(problems(DUMPED.with_cuts(doubled(DUMPED.cuts, index))))
    assert found.reason is Reason.CUT_DUPLICATE
    assert found.place.index == index


@pytest.mark.parametrize("index", LEAVES[:-1])
def test_leaves_that_were_swapped_are_told(index: int) -> None:
    found = problems(DUMPED.with_cuts(swapped(DUMPED.cuts, index)))
    assert only(found).reason is Reason.CUTS_REORDERED


@pytest.mark.parametrize("index", LEAVES[:-1])
def test_an_old_leaf_at_the_end_is_told(index: int) -> None:
    found = only(problems(DUMPED.with_cuts((*DUMPED.cuts, DUMPED.cuts[index]))))
    assert found.reason is Reason.CUT_REPLAYED
    assert found.place.index == index


@pytest.mark.parametrize("count", LEAVES[1:])
def test_a_head_that_was_cut_off_the_cuts_is_missed(count: int) -> None:
    found = problems(DUMPED.with_cuts(DUMPED.cuts[count:]))
    assert found[0].reason is Reason.CUT_MISSING


@pytest.mark.parametrize("count", LEAVES[3:])
def test_a_log_that_ends_early_is_seen_by_a_pinned_cut_alone(count: int) -> None:
    shorter = truncated(count)
    findings, summary = verified(shorter)
    assert outcome(shorter) is Outcome.OK
    assert Reason.TAIL_UNKNOWABLE in {one.reason for one in findings}
    assert summary.seen_elsewhere is None
    found = only(problems(shorter, pins=[pin()]))
    assert found.reason is Reason.PINNED_CUT_MISSING


def test_a_log_without_cuts_cannot_be_verified() -> None:
    shorter = DUMPED.with_cuts(())
    found = problems(shorter)
    assert Reason.CUTS_ABSENT in {one.reason for one in found}
    assert outcome(Dump(receipts=((), (), ()), cuts=(), wal=())) is Outcome.UNVERIFIABLE
    assert outcome(shorter, pins=[pin()]) is Outcome.TAMPERED


def next_cut(index: int) -> int:
    """Return the first cut from a leaf on."""
    while not decode_cuts_record(DUMPED.cuts[index]).checkpoint:
        index += 1
    return index


def truncated(count: int) -> Dump:
    """Return the dump as it was with `count` leaves: receipts end with the last cut."""
    cuts = DUMPED.cuts[:count]
    leaves = [decode_leaf(decode_cuts_record(value).leaf) for value in cuts]
    heads = [leaf.heads for leaf in leaves if isinstance(leaf, Cut)][-1]
    receipts = tuple(
        values[: head.size] for values, head in zip(DUMPED.receipts, heads, strict=True)
    )
    return Dump(receipts=receipts, cuts=cuts, wal=DUMPED.wal)


# ---- anything at once ----------------------------------------------------------------

Edit = Callable[[tuple[bytes, ...], int, int], tuple[bytes, ...]]
EDITS: dict[str, Edit] = {
    "delete": lambda values, at, _: without(values, at),
    "double": lambda values, at, _: doubled(values, at),
    "swap": lambda values, at, _: (
        swapped(values, at) if at + 1 < len(values) else values
    ),
    "move": lambda values, at, _: (*without(values, at), values[at]),
    "flip": lambda values, at, to: changed(
        values, at, flipped(values[at], to % len(values[at]), 1)
    ),
}


@given(
    edits=st.lists(
        st.tuples(
            st.integers(-1, len(PARTITIONS) - 1),
            st.sampled_from(sorted(EDITS)),
            st.integers(0, 10_000),
            st.integers(0, 10_000),
        ),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=200)
def test_whatever_is_done_at_once_nothing_but_a_cut_tail_passes(
    edits: list[tuple[int, str, int, int]],
) -> None:
    topics = {-1: DUMPED.cuts, **dict(enumerate(DUMPED.receipts))}
    for topic, edit, at, to in edits:
        values = topics[topic]
        if values:
            topics[topic] = EDITS[edit](values, at % len(values), to)
    cuts = topics.pop(-1)
    dump = Dump(receipts=tuple(topics.values()), cuts=cuts, wal=())
    if outcome(dump) is Outcome.OK:
        assert cuts == DUMPED.cuts[: len(cuts)]
        for found, whole in zip(dump.receipts, DUMPED.receipts, strict=True):
            assert found == whole[: len(found)]
