"""One partition's signer over logs in memory: in order, once each, or not at all."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachemind.agents.audit_reading import receipt_of
from cachemind.agents.signing import BATCH_RECORDS, PartitionSigner
from cachemind.core.receipt_follow import FORK, LOST, OTHER_LOG
from cachemind.errors import (
    AuditBroken,
    KeyRefused,
    KeyUnavailable,
    LogTakenOver,
    LogUnavailable,
)
from cachemind.receipts import UNREADABLE, KeyChange, KeyRole
from tests.unit.signing_cases import ZERO, Signed, offset


def test_each_record_has_a_receipt_and_a_new_signer_goes_on_from_there() -> None:
    log = Signed()
    log.append(3)
    log.sign_all()
    log.append(2)
    log.wal.leave_gap(ZERO, 3)
    log.append(2)
    log.sign_all()
    assert log.is_one_to_one()
    assert [receipt.seq for receipt in log.receipts()] == list(range(7))


def test_records_given_again_are_not_signed_again() -> None:
    log = Signed()
    log.append(3)
    signer = log.sign_all()
    assert signer.sign(log.records()) == 0
    assert log.is_one_to_one()


@pytest.mark.parametrize("value", [None, b"", b"nothing", b"\xc3\x01" + bytes(8)])
def test_what_cannot_be_decoded_has_a_receipt(value: bytes | None) -> None:
    log = Signed()
    log.append_raw(value)
    log.append()
    log.sign_all()
    assert [receipt.kind for receipt in log.receipts()] == [UNREADABLE, "stored"]
    assert log.metrics.unread == 1
    assert log.is_one_to_one()


STEPS = st.lists(
    st.sampled_from(["append", "sign", "gap", "doubt", "lost", "restart", "other"]),
    max_size=25,
)


@given(steps=STEPS)
@settings(deadline=None)
def test_whatever_fails_receipts_stay_one_to_one(steps: list[str]) -> None:
    log = Signed()
    log.append()
    signer = log.sign_all()
    for step in steps:
        if step == "append":
            log.append(2)
        elif step == "gap":
            log.wal.leave_gap(ZERO)
        elif step == "doubt":
            log.writer.fails_after_commit = True
        elif step == "lost":
            log.failpoints.at["signer.appended"] = log.audit.go_away
        elif step == "restart":
            signer = log.signer()
        elif step == "other":
            attempt(log.signer(), log)
        else:
            attempt(signer, log)
    log.failpoints.at.clear()
    log.sign_all()
    assert log.is_one_to_one()
    assert [receipt.seq for receipt in log.receipts()] == list(
        range(len(log.records()))
    )


def attempt(signer: PartitionSigner, log: Signed) -> None:
    """Sign as the process does: begin anew after every error."""
    try:
        if not signer.ready:
            signer.begin()
        signer.sign(log.records())
    except LogUnavailable:
        assert not signer.ready
    log.audit.come_back()


def test_an_older_signer_cannot_add_to_what_a_newer_one_has_signed() -> None:
    log = Signed()
    log.append(2)
    older = log.sign_all()
    log.append()
    log.failpoints.at["signer.appended"] = log.sign_all
    with pytest.raises(LogTakenOver):
        older.sign(log.records())
    assert log.is_one_to_one()
    with pytest.raises(LogUnavailable):
        older.sign(log.records())


def test_a_key_that_was_replaced_meanwhile_signs_nothing_that_is_committed() -> None:
    log = Signed()
    log.add_first_keys()
    signer = log.sign_all()
    log.cut_all()
    log.watch.catch_up()
    log.held.keys[KeyRole.RECEIPT].append(key := log.held.keys[KeyRole.LOG][0])
    log.append()

    def exchange() -> None:
        log.key_event(KeyChange.ADD, KeyRole.RECEIPT, "log-1")
        log.watch._key = key

    log.failpoints.at["signer.appended"] = exchange
    with pytest.raises(LogUnavailable, match="another key"):
        signer.sign(log.records())
    before = len(log.receipts())
    signer.begin()
    signer.sign(log.records())
    assert {r.key_id for r in log.receipts()[before:]} == {key.key_id}
    assert log.is_one_to_one()


def test_a_key_that_is_away_leaves_the_signer_where_it_was() -> None:
    log = Signed()
    log.append(2)
    signer = log.sign_all()
    log.append()
    (key,) = log.held.keys[KeyRole.RECEIPT]
    key.failure = KeyUnavailable("k", "away")
    with pytest.raises(KeyUnavailable):
        signer.sign(log.records())
    key.failure = None
    assert signer.sign(log.records()) == 1
    assert log.is_one_to_one()


def test_without_a_key_that_may_sign_the_error_says_which_may() -> None:
    log = Signed()
    log.add_first_keys()
    log.key_event(KeyChange.RETIRE, KeyRole.RECEIPT, "receipt-1")
    log.sign_all()
    log.cut_all()
    log.watch.catch_up()
    log.append()
    with pytest.raises(KeyRefused, match="may sign: none"):
        log.sign_all()


def test_more_than_one_batch_is_signed_in_order() -> None:
    log = Signed()
    log.append(BATCH_RECORDS + 5)
    assert log.sign_all().position == BATCH_RECORDS + 5
    assert log.is_one_to_one()


def refused(log: Signed) -> str:
    with pytest.raises(AuditBroken) as broken:
        log.signer().begin()
    return broken.value.reason


def test_a_second_receipt_of_a_seq_is_a_fork() -> None:
    log = Signed()
    log.append(2)
    log.sign_all()
    first = log.records(log.audit)[0]
    other = Signed()
    other.append_raw(b"another record")
    other.sign_all()
    forged = other.records(other.audit)[0]
    assert receipt_of(forged).place.seq == receipt_of(first).place.seq
    log.audit.append_at(ZERO, [(b"", forged.value or b"", ())])
    assert refused(log) == FORK


def test_another_writers_records_are_noticed_when_the_next_batch_is_committed() -> None:
    log = Signed()
    log.append(2)
    signer = log.sign_all()
    log.audit.append_at(ZERO, [(b"", b"anything", ())])
    log.append()
    with pytest.raises(AuditBroken) as broken:
        signer.sign(log.records())
    assert broken.value.reason == FORK


def test_a_log_that_was_made_anew_is_another_one() -> None:
    log = Signed()
    log.append(3)
    log.sign_all()
    log.wal = Signed().wal
    assert refused(log) == OTHER_LOG
    for _ in range(3):
        log.wal.append_at(ZERO, [(b"", b"others", ())])
    assert refused(log) == OTHER_LOG


def test_records_deleted_before_they_were_signed_stop_the_partition() -> None:
    log = Signed()
    log.append(3)
    log.sign_all()
    log.append(3)
    log.wal.delete_before(ZERO, offset(4))
    assert refused(log) == LOST


def with_marks_at_the_end() -> Signed:
    """Return a log that ends with marks, all of it signed and looked at."""
    log = Signed()
    log.append(3)
    signer = log.sign_all()
    log.wal.leave_gap(ZERO, 2)
    signer.settle(offset(3), offset(5))
    return log


def test_marks_that_were_deleted_with_what_is_signed_are_no_loss() -> None:
    log = with_marks_at_the_end()
    log.wal.delete_before(ZERO, offset(5))
    signer = log.signer()
    signer.begin()
    assert signer.position == 5
    log.append(2)
    assert signer.sign(log.records()) == 2
    log.wal.leave_gap(ZERO, 1)
    log.wal.delete_before(ZERO, offset(8))
    assert refused(log) == LOST


def test_what_was_never_looked_at_may_have_been_a_record() -> None:
    log = with_marks_at_the_end()
    log.wal.leave_gap(ZERO, 1)
    log.wal.delete_before(ZERO, offset(6))
    assert refused(log) == LOST
    log.place.content = None
    assert refused(log) == LOST


@pytest.mark.parametrize("kept", [b"", b"[]", b"{}", b'{"leaf":1}'])
def test_what_is_kept_and_does_not_hold_is_as_good_as_nothing(kept: bytes) -> None:
    log = with_marks_at_the_end()
    log.place.content = kept
    log.wal.delete_before(ZERO, offset(5))
    assert refused(log) == LOST


def test_what_was_kept_after_another_receipt_says_nothing() -> None:
    log = with_marks_at_the_end()
    kept = json.loads(log.place.content or b"")
    log.append(1)
    log.sign_all()
    log.append(1)
    log.place.content = json.dumps({**kept, "position": 9}).encode()
    log.wal.delete_before(ZERO, offset(7))
    assert refused(log) == LOST


def test_receipts_that_are_gone_although_a_cut_was_over_them_are_missed() -> None:
    log = Signed()
    log.add_first_keys()
    log.append(3)
    log.sign_all()
    log.cut_all()
    log.watch.catch_up()
    log.audit = Signed().audit
    assert refused(log) == LOST


def test_a_last_receipt_with_a_wrong_signature_is_not_built_on() -> None:
    log = Signed()
    log.append(2)
    log.sign_all()
    log.held.keys[KeyRole.RECEIPT][0] = log.held.keys[KeyRole.LOG][0]
    log.held.keys[KeyRole.RECEIPT][0]._key_id = log.receipts()[0].key_id
    assert refused(log) == FORK
