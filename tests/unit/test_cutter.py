"""The cutter over logs in memory: it goes on from what is there, or not at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cachemind.adapters.key_verify import OpensslCheck
from cachemind.adapters.memory_keys import MemoryKey
from cachemind.codec.cuts import decode_cuts_record, encode_cuts_record
from cachemind.core.checkpoint_note import Checkpoint
from cachemind.core.cutting import MISMATCH, GrowingHead
from cachemind.core.merkle import Frontier, leaf_hash
from cachemind.core.receipt_follow import CHAIN, FORK, LOST
from cachemind.core.signed_note import NoteKey, NoteKeyKind, SignedNote, verdict_on
from cachemind.errors import KeyUnavailable
from cachemind.receipts import (
    Cut,
    CutsRecord,
    KeyChange,
    KeyRole,
    SignedKeyEvent,
)
from cachemind.types import Sha256
from tests.unit.signing_cases import LOG_ID, ZERO, Signed


@pytest.fixture
def log() -> Signed:
    log = Signed()
    log.add_first_keys()
    log.append(5)
    log.sign_all()
    log.cut_all()
    return log


def test_key_events_become_leaves_before_the_first_cut(log: Signed) -> None:
    kinds = [type(leaf) for leaf in log.leaves()]
    assert kinds[:2] == [SignedKeyEvent, SignedKeyEvent]
    assert set(kinds[2:]) == {Cut}
    cut = log.last_cut()
    assert cut is not None
    assert cut.heads[0].size == 7


def test_a_checkpoint_is_over_every_leaf_and_signed_by_the_log_key(log: Signed) -> None:
    values = [record.value or b"" for record in log.records(log.cuts)]
    tree = Frontier()
    for value in values:
        tree.append(leaf_hash(decode_cuts_record(value).leaf))
    note = SignedNote.parse(decode_cuts_record(values[-1]).checkpoint)
    expected = Checkpoint(origin=LOG_ID, size=len(values), root=tree.root())
    assert Checkpoint.parse(note.text) == expected
    public = MemoryKey("log-1").public_key
    key = NoteKey(name=LOG_ID, kind=NoteKeyKind.ECDSA, public_key=public)
    assert verdict_on(note, [key], OpensslCheck()).counts


def test_a_new_cutter_goes_on_where_the_last_one_was(log: Signed) -> None:
    log.append(4)
    log.key_event(KeyChange.ADD, KeyRole.RECEIPT, "receipt-2")
    log.sign_all()
    log.cut_all()
    log.append(1)
    log.sign_all()
    log.cut_all()
    cut = log.last_cut()
    assert cut is not None
    assert cut.heads[0].size == 13
    assert sum(isinstance(leaf, SignedKeyEvent) for leaf in log.leaves()) == 3
    assert sum(log.metrics.cuts) == 13
    assert not log.metrics.why


@pytest.mark.parametrize(
    "failpoint", ["cutter.events-committed", "cutter.signed", "cutter.appended"]
)
def test_a_key_event_becomes_one_leaf_whatever_fails(
    log: Signed, failpoint: str
) -> None:
    log.key_event(KeyChange.ADD, KeyRole.RECEIPT, "receipt-2")
    log.sign_all()
    log.failpoints.at[failpoint] = log.take_over_cuts
    log.cut_all()
    log.cut_all()
    assert sum(isinstance(leaf, SignedKeyEvent) for leaf in log.leaves()) == 3
    cut = log.last_cut()
    assert cut is not None
    assert cut.heads[0].size == 8


def test_a_key_event_that_no_root_key_signed_has_a_receipt_and_no_effect(
    log: Signed,
) -> None:
    log.key_event(KeyChange.ADD, KeyRole.LOG, "log-2", root=MemoryKey("not the root"))
    log.append_raw(b"no event", namespace=log.system)
    log.sign_all()
    log.cut_all()
    assert log.metrics.refused == 1
    assert sum(isinstance(leaf, SignedKeyEvent) for leaf in log.leaves()) == 2
    cut = log.last_cut()
    assert cut is not None
    assert cut.heads[0].size == 9


def test_no_cut_is_signed_before_a_log_key_was_added() -> None:
    log = Signed()
    log.key_event(KeyChange.ADD, KeyRole.RECEIPT, "receipt-1")
    log.append(3)
    log.sign_all()
    log.cut_all()
    assert [type(leaf) for leaf in log.leaves()] == [SignedKeyEvent]
    assert set(log.metrics.why) == {"no-key"}
    log.key_event(KeyChange.ADD, KeyRole.LOG, "log-1")
    log.sign_all()
    log.cut_all()
    assert log.last_cut() is not None


def test_the_newest_log_key_that_is_held_signs(log: Signed) -> None:
    log.held.keys[KeyRole.LOG].append(MemoryKey("log-2"))
    log.key_event(KeyChange.ADD, KeyRole.LOG, "log-2")
    log.key_event(KeyChange.RETIRE, KeyRole.LOG, "log-1")
    log.key_event(KeyChange.ADD, KeyRole.LOG, "elsewhere")
    log.sign_all()
    log.cut_all()
    log.held.keys[KeyRole.LOG].clear()
    log.append()
    log.sign_all()
    before = len(log.leaves())
    log.cut_all()
    assert len(log.leaves()) == before
    assert set(log.metrics.why) == {"no-key"}


def test_a_log_key_that_is_away_is_waited_for(log: Signed) -> None:
    (key,) = log.held.keys[KeyRole.LOG]
    key.failure = KeyUnavailable("k", "away")
    log.append()
    log.sign_all()
    before = len(log.leaves())
    log.cut_all()
    assert len(log.leaves()) == before
    key.failure = None
    log.cut_all()
    cut = log.last_cut()
    assert cut is not None
    assert cut.heads[0].size == 8


def forge_cut(log: Signed) -> None:
    last = log.records(log.cuts)[-1].value or b""
    log.cuts.append_at(ZERO, [(b"", last, ())])


def forge_checkpoint(log: Signed) -> None:
    """Replace the last record by one whose checkpoint somebody else has signed."""
    *kept, last = (record.value or b"" for record in log.records(log.cuts))
    found = decode_cuts_record(last)
    note = SignedNote.parse(found.checkpoint)
    changed = note.signatures[0].value[:-1] + bytes([note.signatures[0].value[-1] ^ 1])
    line = type(note.signatures[0])(
        name=LOG_ID, key_hash=note.signatures[0].key_hash, value=changed
    )
    forged = SignedNote(text=note.text, signatures=(line,))
    log.cuts = Signed().cuts
    record = CutsRecord(leaf=found.leaf, checkpoint=str(forged))
    values = [*kept, encode_cuts_record(record)]
    log.cuts.append_at(ZERO, [(b"", value, ()) for value in values])


def forge_key_event(log: Signed) -> None:
    value = encode_cuts_record(CutsRecord(leaf=log.unsigned_event(), checkpoint=""))
    log.cuts.append_at(ZERO, [(b"", value, ())])


def cut_the_head(log: Signed) -> None:
    log.cuts.delete_before(ZERO, log.records(log.cuts)[1].lsn.offset)


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        pytest.param(forge_cut, "broken-chain", id="a-cut-once-more"),
        pytest.param(forge_checkpoint, "checkpoint-does-not-hold", id="checkpoint"),
        pytest.param(forge_key_event, "key-event-does-not-hold", id="key-event"),
        pytest.param(cut_the_head, LOST, id="first-leaf-deleted"),
    ],
)
def test_a_log_of_cuts_that_does_not_hold_ends_the_cutter(
    log: Signed, harm: Callable[[Signed], None], reason: str
) -> None:
    harm(log)
    log.append()
    log.sign_all()
    before = len(log.records(log.cuts))
    log.cut_all()
    assert log.metrics.why == [reason]
    assert len(log.records(log.cuts)) == before


def test_a_leaf_of_another_writer_is_noticed_at_the_next_cut(
    log: Signed, caplog: pytest.LogCaptureFixture
) -> None:
    log.append()
    log.sign_all()
    log.failpoints.at["cutter.signed"] = lambda: forge_cut(log)
    log.cut_all()
    assert "another writer has appended" in caplog.text
    log.append()
    log.sign_all()
    log.cut_all()
    assert log.metrics.why == ["broken-chain"]


def drop_one(values: list[bytes]) -> list[bytes]:
    return [*values[:-2], values[-1]]


def repeat_other(values: list[bytes]) -> list[bytes]:
    other = Signed()
    other.append_raw(b"another history")
    other.sign_all()
    return [*values, other.records(other.audit)[0].value or b""]


def cut_tail(values: list[bytes]) -> list[bytes]:
    return values[:5]


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        pytest.param(drop_one, CHAIN, id="one-receipt-dropped"),
        pytest.param(repeat_other, FORK, id="a-second-history"),
        pytest.param(cut_tail, LOST, id="fewer-than-the-last-cut-was-over"),
    ],
)
def test_receipts_that_do_not_follow_on_are_under_no_cut(
    log: Signed, harm: Callable[[list[bytes]], list[bytes]], reason: str
) -> None:
    log.append(3)
    log.sign_all()
    values = [record.value or b"" for record in log.records(log.audit)]
    log.audit = Signed().audit
    log.audit.append_at(ZERO, [(b"", value, ()) for value in harm(values)])
    log.cut_all()
    assert reason in log.metrics.why
    cut = log.last_cut()
    assert cut is not None
    assert cut.heads[0].size < 10 or reason == FORK


def test_a_receipt_that_changed_in_memory_is_not_cut(
    log: Signed, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = GrowingHead.append

    def flipped(head: GrowingHead, content: bytes, leaf: Sha256) -> None:
        append(head, content[:-1] + bytes([content[-1] ^ 1]), leaf)

    monkeypatch.setattr(GrowingHead, "append", flipped)
    log.append()
    log.sign_all()
    before = len(log.leaves())
    log.cut_all()
    assert log.metrics.why == [MISMATCH]
    assert len(log.leaves()) == before
