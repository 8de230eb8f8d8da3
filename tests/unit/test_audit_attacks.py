"""Attacks that take more than an editor: by who writes the topics, or holds keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cachemind.adapters.memory_keys import MemoryKey
from cachemind.codec.cuts import (
    decode_cut,
    decode_cuts_record,
    encode_cut,
    encode_cuts_record,
    encode_key_event,
)
from cachemind.codec.receipts import (
    decode_receipt,
    decode_signed_receipt,
    encode_receipt,
)
from cachemind.core.audit_findings import Outcome, Reason, Severity, Step
from cachemind.core.audit_means import RootKey
from cachemind.core.audit_notes import CutNote
from cachemind.core.merkle import Frontier
from cachemind.core.signed_note import SignedNote
from cachemind.receipts import (
    Cut,
    CutIndex,
    CutsRecord,
    KeyChange,
    KeyEvent,
    KeyRole,
    LogId,
    PartitionHead,
    Receipt,
)
from cachemind.types import Lsn, Namespace, Offset, Partition, Principal, Sha256
from tests.audit_checks import outcome, problems, verified
from tests.audit_dump import (
    LOG_ID,
    PINNED,
    ROOT,
    WITNESS_NAME,
    Dump,
    DumpMaker,
    cosigned,
    signed,
    signed_key_event,
)
from tests.wal_events import rolled_back, stored

ALPHA = Namespace("alpha")
P = 1
"""The partition that `alpha` and the key events are in."""

RECEIPT, OTHER, LOG = MemoryKey("receipt"), MemoryKey("other"), MemoryKey("log")
ADD, RETIRE, REVOKE = KeyChange.ADD, KeyChange.RETIRE, KeyChange.REVOKE


def begun() -> DumpMaker:
    """Return a log with both keys added, some receipts and a cut."""
    made = DumpMaker(3, RECEIPT, LOG)
    made.key_event(ADD, KeyRole.RECEIPT, RECEIPT)
    made.key_event(ADD, KeyRole.LOG, LOG)
    grow(made, 4)
    made.cut()
    return made


def grow(made: DumpMaker, count: int) -> None:
    for number in range(count):
        made.append(stored(1_000 * len(made.cuts) + number), ALPHA)


def reasons(dump: Dump) -> set[Reason]:
    return {one.reason for one in problems(dump)}


def the_reason(dump: Dump) -> Reason:
    (reason,) = reasons(dump)
    return reason


def receipt_at(dump: Dump, seq: int) -> Receipt:
    return decode_receipt(decode_signed_receipt(dump.receipts[P][seq]).receipt)


def cut_at(dump: Dump, index: int) -> Cut:
    return decode_cut(decode_cuts_record(dump.cuts[index]).leaf)


def test_an_honest_log_verifies() -> None:
    assert problems(begun().dump()) == []


# ---- keys out of their time ----------------------------------------------------------


def with_a_key_not_added_yet(made: DumpMaker) -> None:
    made.receipt_key = OTHER
    grow(made, 1)
    made.cut()
    made.receipt_key = RECEIPT
    made.key_event(ADD, KeyRole.RECEIPT, OTHER)


def with_a_retired_key(made: DumpMaker) -> None:
    made.key_event(ADD, KeyRole.RECEIPT, OTHER)
    made.key_event(RETIRE, KeyRole.RECEIPT, RECEIPT)
    made.cut()
    grow(made, 1)


def with_a_revoked_key(made: DumpMaker) -> None:
    made.key_event(ADD, KeyRole.RECEIPT, OTHER)
    made.receipt_key = OTHER
    grow(made, 2)
    made.cut()
    last_good = made.next_index() - 1
    grow(made, 1)
    made.cut()
    made.receipt_key = RECEIPT
    made.key_event(REVOKE, KeyRole.RECEIPT, OTHER, last_good)


def with_a_log_key(made: DumpMaker) -> None:
    made.receipt_key = LOG
    grow(made, 1)
    made.receipt_key = RECEIPT


def with_a_key_that_nobody_added(made: DumpMaker) -> None:
    made.receipt_key = OTHER
    grow(made, 1)
    made.receipt_key = RECEIPT


def with_a_retired_log_key(made: DumpMaker) -> None:
    made.key_event(ADD, KeyRole.LOG, OTHER)
    made.key_event(RETIRE, KeyRole.LOG, LOG)


def with_a_revoked_log_key(made: DumpMaker) -> None:
    made.key_event(ADD, KeyRole.LOG, OTHER)
    made.cut()
    last_good = made.next_index() - 1
    made.cut()
    made.log_key = OTHER
    made.key_event(REVOKE, KeyRole.LOG, LOG, last_good)


def with_a_receipt_key_on_the_cut(made: DumpMaker) -> None:
    made.log_key = RECEIPT


def with_a_log_key_not_added_yet(made: DumpMaker) -> None:
    made.log_key = OTHER
    made.cut()
    made.log_key = LOG
    made.key_event(ADD, KeyRole.LOG, OTHER)


@pytest.mark.parametrize(
    ("attack", "expected"),
    [
        (with_a_key_not_added_yet, Reason.UNKNOWN_KEY),
        (with_a_retired_key, Reason.KEY_RETIRED),
        (with_a_revoked_key, Reason.KEY_REVOKED),
        (with_a_log_key, Reason.KEY_OF_OTHER_ROLE),
        (with_a_key_that_nobody_added, Reason.UNKNOWN_KEY),
        (with_a_retired_log_key, Reason.KEY_RETIRED),
        (with_a_revoked_log_key, Reason.KEY_REVOKED),
        (with_a_receipt_key_on_the_cut, Reason.KEY_OF_OTHER_ROLE),
        (with_a_log_key_not_added_yet, Reason.CHECKPOINT_UNSIGNED),
    ],
)
def test_a_key_signs_in_its_time_only(
    attack: Callable[[DumpMaker], None], expected: Reason
) -> None:
    made = begun()
    attack(made)
    made.cut()
    assert the_reason(made.dump()) is expected


def test_what_a_key_signed_in_its_time_counts_after_it_was_revoked() -> None:
    made = begun()
    with_a_revoked_key(made)
    made.cut()
    found = problems(made.dump())
    assert [one.place.seq for one in found] == [9]


# ---- key events ----------------------------------------------------------------------


def key_event_leaf(
    key: MemoryKey, *signers: MemoryKey, log_id: LogId = LOG_ID
) -> bytes:
    event = KeyEvent(
        log_id=log_id,
        change=ADD,
        role=KeyRole.RECEIPT,
        key_id=key.key_id,
        public_key=OTHER.public_key,
        last_good_cut=-1,
        at_ns=1,
        principal=Principal("mallory"),
        reason="",
    )
    return signed_key_event(encode_key_event(event), *signers)


@pytest.mark.parametrize(
    ("leaf", "expected"),
    [
        pytest.param(
            key_event_leaf(OTHER, OTHER), Reason.KEY_EVENT_UNSIGNED, id="not-by-root"
        ),
        pytest.param(
            key_event_leaf(OTHER, ROOT), Reason.KEY_EVENT_UNSIGNED, id="not-by-itself"
        ),
        pytest.param(
            key_event_leaf(OTHER, LOG, OTHER),
            Reason.KEY_EVENT_UNSIGNED,
            id="by-the-log-key",
        ),
        pytest.param(
            key_event_leaf(RECEIPT, ROOT, OTHER),
            Reason.KEY_EVENT_MISNAMED,
            id="under-another-keys-name",
        ),
        pytest.param(
            key_event_leaf(OTHER, ROOT, OTHER, log_id=LogId("example.com/other")),
            Reason.OTHER_LOG,
            id="of-another-log",
        ),
    ],
)
def test_a_key_event_counts_only_if_root_and_key_signed_it(
    leaf: bytes, expected: Reason
) -> None:
    made = begun()
    made.add_leaf(leaf)
    assert the_reason(made.dump()) is expected


def test_an_event_that_fits_no_key_is_noted() -> None:
    made = begun()
    made.key_event(ADD, KeyRole.RECEIPT, RECEIPT)
    made.cut()
    findings, _ = verified(made.dump())
    assert Reason.KEY_EVENT_WITHOUT_EFFECT in {one.reason for one in findings}
    assert outcome(made.dump()) is Outcome.OK


def test_another_root_key_vouches_for_nothing() -> None:
    roots = (RootKey(key_id=OTHER.key_id, public_key=OTHER.public_key),)
    findings, _ = verified(begun().dump(), pinned=replace(PINNED, roots=roots))
    assert findings[0].reason is Reason.KEY_EVENT_UNSIGNED


# ---- receipts by who holds the receipt key -------------------------------------------


def test_two_receipts_of_one_seq_are_a_fork() -> None:
    dump = begun().dump()
    other = replace(receipt_at(dump, 3), signed_at_ns=7)
    forged = signed(encode_receipt(other), RECEIPT)
    values = dump.receipts[P]
    after = dump.with_receipts(P, (*values[:4], forged, *values[4:]))
    assert the_reason(after) is Reason.FORK
    assert problems(after)[0].place.seq == 3


def test_a_receipt_put_in_the_place_of_another_breaks_chain_and_root() -> None:
    dump = begun().dump()
    other = replace(receipt_at(dump, 3), record_hash=Sha256(bytes(32)))
    forged = signed(encode_receipt(other), RECEIPT)
    values = dump.receipts[P]
    after = dump.with_receipts(P, (*values[:3], forged, *values[4:]))
    found = problems(after)
    assert [(one.reason, one.place.seq) for one in found] == [
        (Reason.CHAIN, 4),
        (Reason.ROOT, None),
    ]


@pytest.mark.parametrize(
    ("offset", "expected"),
    [(9, Reason.SOURCE_REPEATED), (7, Reason.SOURCE_ORDER)],
)
def test_a_record_has_one_receipt_and_receipts_are_in_order(
    offset: int, expected: Reason
) -> None:
    made = begun()
    last = receipt_at(made.dump(), 5)
    assert last.source.offset == 11
    source = Lsn(Partition(P), Offset(offset + 2))
    add(made, replace(last, source=source))
    made.cut()
    assert the_reason(made.dump()) is expected


def test_a_receipt_of_another_log_partition_or_topic_is_told() -> None:
    made = begun()
    last = receipt_at(made.dump(), 5)
    later = Lsn(Partition(P), Offset(100))
    add(made, replace(last, source=later, log_id=LogId("example.com/other")))
    later = Lsn(Partition(0), Offset(101))
    add(made, replace(receipt_at(made.dump(), 6), log_id=LOG_ID, source=later))
    later = Lsn(Partition(P), Offset(102))
    add(made, replace(receipt_at(made.dump(), 7), source=later, source_topic="else"))
    assert [(one.step, one.reason) for one in problems(made.dump())] == [
        (Step.CHAIN, Reason.OTHER_LOG),
        (Step.SOURCES, Reason.OTHER_PARTITION),
        (Step.SOURCES, Reason.SOURCE_TOPIC),
    ]


def add(made: DumpMaker, receipt: Receipt) -> None:
    """Append `receipt` with the seq and chain that come next."""
    made.add_next(P, receipt)


# ---- larger holes --------------------------------------------------------------------


def test_a_hole_is_told_once_and_what_follows_is_still_verified() -> None:
    made = begun()
    made.cut()
    grow(made, 6)
    made.cut()
    dump = made.dump()
    values = dump.receipts[P]
    holed = dump.with_receipts(P, (*values[:2], *values[5:]))
    found = problems(holed)
    assert [(one.reason, one.place.seq) for one in found] == [(Reason.MISSING, 2)]
    again = (*values[:2], *values[5:9], *values[10:])
    found = problems(dump.with_receipts(P, again))
    assert [(one.reason, one.place.seq) for one in found] == [
        (Reason.MISSING, 2),
        (Reason.MISSING, 9),
    ]


def test_a_hole_across_a_cut_is_told_once() -> None:
    made = begun()
    made.cut()
    grow(made, 6)
    made.cut()
    values = made.dump().receipts[P]
    holed = made.dump().with_receipts(P, (*values[:5], *values[8:]))
    found = problems(holed)
    assert [(one.reason, one.place.seq) for one in found] == [(Reason.MISSING, 5)]


def test_past_several_missing_leaves_no_root_is_claimed() -> None:
    made = begun()
    for _ in range(4):
        grow(made, 1)
        made.cut()
    cuts = made.dump().cuts
    holed = made.dump().with_cuts((*cuts[:3], *cuts[5:]))
    found = problems(holed)
    assert [one.reason for one in found] == [
        Reason.CUT_MISSING,
        Reason.CHECKPOINT_ROOT_UNKNOWN,
    ]
    assert outcome(holed) is Outcome.TAMPERED


# ---- cuts by who holds the log key ---------------------------------------------------


def test_two_cuts_of_one_index_are_a_fork() -> None:
    dump = begun().dump()
    fork = begun()
    grow(fork, 1)
    fork.cut()
    other = begun()
    other.cut()
    both = replace(fork.dump(), cuts=(*fork.dump().cuts, other.dump().cuts[-1]))
    assert len(dump.cuts) + 1 == len(fork.dump().cuts)
    assert the_reason(both) is Reason.CUT_FORK


def altered(made: DumpMaker, change: Callable[[Cut], Cut]) -> Dump:
    """Return the log with one more cut, signed, of which something is changed."""
    ahead = begun()
    ahead.cut()
    cut = cut_at(ahead.dump(), made.next_index())
    made.add_cut(change(cut))
    return made.dump()


def head_of(cut: Cut, **changes: object) -> Cut:
    heads = list(cut.heads)
    heads[P] = replace(heads[P], **changes)  # type: ignore[arg-type]  # a test's
    return replace(cut, heads=tuple(heads))


def smaller(cut: Cut) -> Cut:
    tree = Frontier()
    tree.append(Sha256(bytes(32)))
    return head_of(cut, size=1, root=tree.root(), frontier=tree.nodes)


def fewer(cut: Cut) -> Cut:
    return replace(cut, heads=cut.heads[:2])


def more(cut: Cut) -> Cut:
    head = PartitionHead(
        partition=Partition(3), size=0, root=Frontier().root(), frontier=()
    )
    return replace(cut, heads=(*cut.heads, head))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (smaller, Reason.HEAD_SHRINKS),
        (lambda cut: head_of(cut, root=Sha256(bytes(32))), Reason.HEAD_CHANGED),
        (fewer, Reason.PARTITIONS_CHANGED),
        (more, Reason.PARTITIONS_CHANGED),
        (lambda cut: replace(cut, previous=Sha256(bytes(32))), Reason.CUT_CHAIN),
        (lambda cut: replace(cut, log_id=LogId("example.com/x")), Reason.OTHER_LOG),
        (
            lambda cut: replace(cut, index=CutIndex(cut.index + 1)),
            Reason.CHECKPOINT_OF_OTHER_CUT,
        ),
    ],
)
def test_a_cut_cannot_take_back_what_was_signed(
    change: Callable[[Cut], Cut], expected: Reason
) -> None:
    assert the_reason(altered(begun(), change)) is expected


def test_a_head_with_another_root_than_the_receipts_is_told() -> None:
    made = begun()
    grow(made, 1)
    ahead = begun()
    grow(ahead, 1)
    ahead.cut()
    cut = cut_at(ahead.dump(), made.next_index())
    tree = Frontier()
    tree.extend(Sha256(bytes([n]) * 32) for n in range(cut.heads[P].size))
    made.add_cut(head_of(cut, root=tree.root(), frontier=tree.nodes))
    assert the_reason(made.dump()) is Reason.ROOT
    made = begun()
    grow(made, 1)
    made.add_cut(head_of(cut, frontier=tree.nodes))
    assert the_reason(made.dump()) is Reason.FRONTIER


def test_a_checkpoint_over_other_leaves_is_told() -> None:
    dump = begun().dump()
    record = decode_cuts_record(dump.cuts[-1])
    cut = replace(decode_cut(record.leaf), at_ns=5)
    other = encode_cuts_record(
        CutsRecord(leaf=encode_cut(cut), checkpoint=record.checkpoint)
    )
    found = problems(dump.with_cuts((*dump.cuts[:-1], other)))
    assert found[0].reason is Reason.CHECKPOINT_ROOT


def test_receipts_in_a_partition_that_no_cut_names_are_told() -> None:
    made = begun()
    values = made.dump().receipts
    dump = replace(made.dump(), receipts=(*values, (values[P][0],)))
    assert Reason.PARTITION_UNNAMED in reasons(dump)


def test_what_no_cut_covers_is_verified_and_noted() -> None:
    made = begun()
    grow(made, 2)
    made.key_event(ADD, KeyRole.RECEIPT, OTHER)
    findings, summary = verified(made.dump())
    notes = [one for one in findings if one.reason is Reason.NOT_COVERED_YET]
    assert [(one.place.partition, one.place.index) for one in notes] == [
        (None, 3),
        (P, None),
    ]
    assert summary.receipts[Partition(P)] - summary.covered[Partition(P)] == 3
    assert outcome(made.dump()) is Outcome.OK


# ---- what only somebody else can show ------------------------------------------------


def resigned() -> Dump:
    """Return the log as who holds all its keys could have written it instead."""
    made = DumpMaker(3, RECEIPT, LOG)
    made.key_event(ADD, KeyRole.RECEIPT, RECEIPT)
    made.key_event(ADD, KeyRole.LOG, LOG)
    grow(made, 3)
    made.append(stored(666), ALPHA)
    made.cut()
    return made.dump()


def pin_of(dump: Dump) -> CutNote:
    return CutNote.parse(decode_cuts_record(dump.cuts[-1]).checkpoint)


def test_a_log_that_was_signed_anew_is_seen_by_a_pinned_cut_alone() -> None:
    assert outcome(resigned()) is Outcome.OK
    found, _ = verified(resigned())
    assert Reason.RESIGNING_UNKNOWABLE in {one.reason for one in found}
    (problem,) = problems(resigned(), pins=[pin_of(begun().dump())])
    assert problem.reason is Reason.PINNED_CUT


def test_a_witness_vouches_for_the_cut_that_it_signed() -> None:
    made = begun()
    witnessed = with_note(made.dump(), cosign)
    _, summary = verified(witnessed)
    assert summary.witnesses == {WITNESS_NAME: 2}
    assert summary.seen_elsewhere == 2
    made.cut()
    findings, summary = verified(
        replace(made.dump(), cuts=(*witnessed.cuts, made.dump().cuts[-1]))
    )
    assert summary.seen_elsewhere == 2
    text = next(f.text for f in findings if f.reason is Reason.RESIGNING_UNKNOWABLE)
    assert "after cut 2" in text


def test_a_witness_line_that_does_not_hold_is_told() -> None:
    def wrong(note: SignedNote) -> SignedNote:
        line = cosigned(note, 1).signatures[-1]
        return note.signed_by(replace(line, value=line.value[:-1] + b"!"))

    assert the_reason(with_note(begun().dump(), wrong)) is Reason.WITNESS


def test_a_line_of_a_witness_that_is_not_pinned_means_nothing() -> None:
    unpinned = replace(PINNED, witnesses=())
    _, summary = verified(with_note(begun().dump(), cosign), pinned=unpinned)
    assert summary.seen_elsewhere is None


def cosign(note: SignedNote) -> SignedNote:
    return cosigned(note, 1_700_000_000)


def with_note(dump: Dump, change: Callable[[SignedNote], SignedNote]) -> Dump:
    record = decode_cuts_record(dump.cuts[-1])
    note = change(SignedNote.parse(record.checkpoint))
    last = encode_cuts_record(CutsRecord(leaf=record.leaf, checkpoint=str(note)))
    return dump.with_cuts((*dump.cuts[:-1], last))


# ---- against the WAL -----------------------------------------------------------------


def wal_problems(dump: Dump, wal_from: int = 0) -> list[tuple[Reason, str]]:
    findings, _ = verified(dump, wal_from=wal_from)
    return [
        (one.reason, str(one.place.source))
        for one in findings
        if one.step is Step.WAL and one.severity is not Severity.NOTE
    ]


def with_wal(dump: Dump, records: list[tuple[int, bytes]]) -> Dump:
    wal = list(dump.wal)
    wal[P] = tuple(records)
    return replace(dump, wal=tuple(wal))


def test_a_record_that_was_changed_is_told_by_its_lsn() -> None:
    dump = begun().dump()
    records = list(dump.wal[P])
    records[2] = (records[2][0], b"another")
    assert wal_problems(with_wal(dump, records)) == [(Reason.WAL_CHANGED, "1@5")]


def test_a_record_that_was_removed_is_told_by_its_lsn() -> None:
    dump = begun().dump()
    for at, (offset, _) in enumerate(dump.wal[P]):
        left = [one for n, one in enumerate(dump.wal[P]) if n != at]
        expected = [(Reason.WAL_MISSING, f"1@{offset}")]
        assert wal_problems(with_wal(dump, left)) == expected


def test_a_record_that_was_never_signed_is_told_by_its_lsn() -> None:
    dump = begun().dump()
    records = [*dump.wal[P][:3], (6, b"slipped in"), *dump.wal[P][3:]]
    assert wal_problems(with_wal(dump, records)) == [(Reason.WAL_UNSIGNED, "1@6")]


def test_what_retention_deleted_is_said_to_be_unknowable() -> None:
    dump = begun().dump()
    assert wal_problems(dump, wal_from=6) == []
    findings, _ = verified(dump, wal_from=6)
    (told,) = [one for one in findings if one.reason is Reason.WAL_DELETED]
    assert told.text.startswith("3 receipts are about records below 1@6")


def test_records_after_the_last_receipt_are_no_fault() -> None:
    dump = begun().dump()
    records = [*dump.wal[P], (90, b"a"), (92, b"b")]
    later = with_wal(dump, records)
    assert wal_problems(later) == []
    findings, _ = verified(later, wal_from=0)
    (told,) = [one for one in findings if one.reason is Reason.WAL_NOT_SIGNED_YET]
    assert told.text.startswith("2 records from 1@90 on")


def test_a_rollback_is_annotated_with_what_it_voids() -> None:
    made = begun()
    made.append(rolled_back(2), ALPHA)
    made.cut()
    findings, _ = verified(made.dump(), wal_from=0)
    (told,) = [one for one in findings if one.reason is Reason.VOIDED]
    assert "alpha to version 2" in told.text
    assert told.severity is Severity.NOTE


def test_a_receipt_that_says_something_else_than_its_record_is_told() -> None:
    made = begun()
    honest = receipt_at(made.dump(), 5)
    offset = 2 * len(made.wal[P]) + 1
    made.wal[P].append((offset, made.wal[P][5][1]))
    source = Lsn(Partition(P), Offset(offset))
    add(made, replace(honest, source=source, namespace="another"))
    made.cut()
    assert problems(made.dump()) == []
    assert wal_problems(made.dump()) == [(Reason.WAL_UNTRUE, f"1@{offset}")]
