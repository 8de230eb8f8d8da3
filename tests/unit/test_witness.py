from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cachemind.adapters.memory_keys import MemoryKey
from cachemind.adapters.witness_files import WitnessMemory
from cachemind.codec.cuts import decode_cuts_record
from cachemind.core.audit_means import WitnessKey
from cachemind.core.audit_notes import CutNote
from cachemind.core.checkpoint_note import Checkpoint
from cachemind.core.signed_note import SignedNote
from cachemind.errors import KeyRefused, MalformedNote, StoreLocked, WitnessRefused
from cachemind.events import Invalidated, SelectorKind
from cachemind.receipts import KeyChange, KeyRole
from cachemind.types import Namespace, Sha256
from cachemind_services.bootstrap.witness import Cosigner, check, cosign, new_witness
from tests.audit_dump import PINNED, DumpMaker, cosigned

EVENT = Invalidated(kind=SelectorKind.ALL, value="", reason="test")
RECEIPT_KEY, LOG_KEY = MemoryKey("witness: receipt"), MemoryKey("witness: log")
NAME = "witness.example.org/w2"


def begun(cuts: int = 1) -> DumpMaker:
    made = DumpMaker(partitions=2, receipt_key=RECEIPT_KEY, log_key=LOG_KEY)
    made.key_event(KeyChange.ADD, KeyRole.LOG, LOG_KEY)
    made.key_event(KeyChange.ADD, KeyRole.RECEIPT, RECEIPT_KEY)
    for _ in range(cuts):
        grow(made)
    return made


def grow(made: DumpMaker) -> None:
    made.append(EVENT, Namespace("shop"))
    made.cut()


@pytest.fixture
def who(tmp_path: Path) -> Cosigner:
    new_witness(NAME, tmp_path / "w.pem")
    return Cosigner(name=NAME, key=tmp_path / "w.pem", memory=tmp_path / "seen")


def signed(made: DumpMaker, who: Cosigner) -> SignedNote:
    return cosign(iter(made.cuts), PINNED, who)


def test_the_newest_checkpoint_is_signed_and_the_signature_can_be_checked(
    tmp_path: Path,
) -> None:
    key = new_witness(NAME, tmp_path / "w.pem")
    who = Cosigner(name=NAME, key=tmp_path / "w.pem", memory=tmp_path / "seen")
    witness = WitnessKey(name=NAME, public_key=key.public_key)
    pinned = replace(PINNED, witnesses=(witness,))
    made = begun()
    for size in (3, 4):
        note = signed(made, who)
        assert CutNote.parse(str(note)).size == size
        assert [one.witness for one in check(note, pinned)] == [NAME]
        grow(made)


def test_the_same_checkpoint_may_be_signed_again(who: Cosigner) -> None:
    made = begun()
    assert signed(made, who).text == signed(made, who).text


def test_a_log_that_lost_its_end_is_not_signed(who: Cosigner) -> None:
    made = begun(3)
    signed(made, who)
    del made.cuts[-1]
    with pytest.raises(WitnessRefused, match="no cut ends with leaf 5"):
        signed(made, who)


def test_another_history_is_not_signed_though_the_logs_keys_have_signed_it(
    who: Cosigner,
) -> None:
    signed(begun(2), who)
    other = begun(0)
    other.append(EVENT, Namespace("other"))
    other.cut()
    for _ in range(3):
        grow(other)
    with pytest.raises(WitnessRefused, match="not those that were seen before"):
        signed(other, who)


def test_a_log_with_a_fault_is_not_signed(who: Cosigner) -> None:
    made = begun(3)
    made.cuts[3] = made.cuts[3][:-3] + b"xx\n"
    with pytest.raises(WitnessRefused):
        signed(made, who)


def test_a_log_without_a_cut_and_one_that_is_not_pinned_are_not_signed(
    who: Cosigner,
) -> None:
    with pytest.raises(WitnessRefused, match="no cut yet"):
        signed(begun(0), who)
    elsewhere = Checkpoint(origin="other.example/log", size=1, root=Sha256(bytes(32)))
    WitnessMemory(who.memory).save(elsewhere)
    with pytest.raises(WitnessRefused, match=r"seen before was other\.example/log"):
        signed(begun(), who)


def test_what_is_signed_was_remembered_before(who: Cosigner) -> None:
    made = begun(2)
    note = signed(made, who)
    seen = WitnessMemory(who.memory).load()
    assert seen == CutNote.parse(str(note)).checkpoint


def test_a_memory_that_says_nothing_stops_the_witness(who: Cosigner) -> None:
    who.memory.write_text("not a checkpoint")
    with pytest.raises(WitnessRefused, match="seen"):
        signed(begun(), who)


def test_two_witnesses_do_not_share_a_memory_at_once(who: Cosigner) -> None:
    with WitnessMemory(who.memory).held(), pytest.raises(StoreLocked):
        signed(begun(), who)


def test_a_key_is_never_replaced_and_its_name_is_checked_first(tmp_path: Path) -> None:
    with pytest.raises(MalformedNote):
        new_witness("a name", tmp_path / "w.pem")
    assert not (tmp_path / "w.pem").exists()
    new_witness(NAME, tmp_path / "w.pem")
    with pytest.raises(KeyRefused, match="already there"):
        new_witness(NAME, tmp_path / "w.pem")


def test_a_note_counts_by_the_witnesses_that_are_pinned_alone() -> None:
    note = CutNote.parse(_checkpoint(begun()))
    with pytest.raises(WitnessRefused, match="no witness"):
        check(note.note, PINNED)
    sound = cosigned(note.note, 1_700_000_000)
    assert [one.time_s for one in check(sound, PINNED)] == [1_700_000_000]
    other = cosigned(CutNote.parse(_checkpoint(begun(2))).note, 5).signatures[-1]
    with pytest.raises(WitnessRefused, match="does not hold"):
        check(note.note.signed_by(other), PINNED)


def _checkpoint(made: DumpMaker) -> str:

    return decode_cuts_record(made.cuts[-1]).checkpoint
