"""What every index of receipts must do, whatever it is kept in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from cachemind.codec.cuts import (
    decode_cut,
    decode_cuts_record,
    encode_key_event,
    encode_signed_key_event,
)
from cachemind.codec.receipts import decode_signed_receipt, encode_receipt
from cachemind.core.merkle import leaf_hash, verify_inclusion
from cachemind.core.partitioner import partition_of
from cachemind.ports.receipt_index import (
    CutProof,
    FoundReceipt,
    ReceiptFinder,
    ReceiptIndex,
)
from cachemind.receipts import (
    KeyChange,
    KeyEvent,
    KeyRole,
    SignedKeyEvent,
)
from cachemind.types import Lsn, Namespace, Offset, Partition, Principal
from tests.receipt_log import KEY_ID, LOG_ID, ReceiptLog, trace

SHOP = Namespace("shop")
PARTITIONS = 2
OURS = partition_of(b"shop", PARTITIONS)

Opened = tuple[ReceiptIndex, ReceiptFinder]
Open = Callable[[int], AbstractContextManager[Opened]]


def feed(index: ReceiptIndex, log: ReceiptLog, batch: int = 7) -> None:
    """Give all that the log has and the index has not."""
    for number, records in enumerate(log.records):
        done = index.receipt_offsets()[Partition(number)]
        new = [record for record in records if record.lsn.offset >= done]
        for start in range(0, len(new), batch):
            assert index.add_receipts(new[start : start + batch])
    cuts = [one for one in log.cuts if one.lsn.offset >= index.cut_offset()]
    if cuts:
        index.add_cuts(cuts)


def is_proven(log: ReceiptLog, found: FoundReceipt, proof: CutProof) -> bool:
    """Say whether a proof leads from the receipt to the root of the log of cuts."""
    record = decode_cuts_record(proof.record)
    cut = decode_cut(record.leaf)
    head = cut.heads[found.partition]
    leaf = leaf_hash(decode_signed_receipt(found.record).receipt)
    return (
        verify_inclusion(leaf, found.seq, head.size, proof.path, head.root)
        and cut.index == proof.index
        and verify_inclusion(
            leaf_hash(record.leaf),
            proof.index,
            proof.index + 1,
            proof.cut_path,
            log.roots[proof.index],
        )
    )


class ReceiptIndexContract:
    """Subclasses give `open_index`, a fixture that opens one to keep so many."""

    def test_every_receipt_is_found_and_proven_by_its_first_cut(
        self, open_index: Open
    ) -> None:
        log = ReceiptLog(PARTITIONS)
        with open_index(1000) as (index, view):
            for number in range(40):
                log.sign(OURS, [trace(number), trace(1000 + number // 10)])
                if number % 3 == 0:
                    log.sign(1 - OURS, [trace(number)], "other")
                if number % 4 == 3:
                    log.cut()
            feed(index, log)
            view.catch_up()
            for receipt in log.receipts[OURS]:
                found = view.of_source(receipt.source)
                assert found is not None
                assert found.seq == receipt.seq
                signed = decode_signed_receipt(found.record)
                assert signed.receipt == encode_receipt(receipt)
                proof = view.proof(found)
                assert proof is not None
                assert proof.index == receipt.seq // 4
                assert is_proven(log, found, proof)
                assert view.of_trace(SHOP, trace(receipt.seq), -1, 5) == [found]

    def test_a_trace_in_many_receipts_is_paged_through(self, open_index: Open) -> None:
        log = ReceiptLog(PARTITIONS)
        with open_index(1000) as (index, view):
            for _ in range(9):
                log.sign(OURS, [trace(5), trace(5)])
            feed(index, log)
            view.catch_up()
            first = view.of_trace(SHOP, trace(5), -1, 6)
            assert [found.seq for found in first] == [0, 1, 2, 3, 4, 5]
            rest = view.of_trace(SHOP, trace(5), 5, 6)
            assert [found.seq for found in rest] == [6, 7, 8]

    def test_another_namespace_finds_nothing(self, open_index: Open) -> None:
        log = ReceiptLog(PARTITIONS)
        with open_index(1000) as (index, view):
            log.sign(OURS, [trace(1)])
            feed(index, log)
            view.catch_up()
            for name in ("other", "shop2", "sho"):
                assert view.of_trace(Namespace(name), trace(1), -1, 5) == []

    def test_a_receipt_without_a_cut_is_found_and_not_proven(
        self, open_index: Open
    ) -> None:
        log = ReceiptLog(PARTITIONS)
        with open_index(1000) as (index, view):
            log.sign(OURS, [trace(1)])
            log.cut()
            late = log.sign(OURS, [trace(2)])
            feed(index, log)
            view.catch_up()
            found = view.of_source(late.source)
            assert found is not None
            assert view.proof(found) is None

    def test_a_cut_that_comes_before_its_receipts_proves_once_they_are_there(
        self, open_index: Open
    ) -> None:
        log = ReceiptLog(PARTITIONS)
        for number in range(3):
            log.sign(OURS, [trace(number)])
        log.cut()
        with open_index(1000) as (index, view):
            index.add_cuts(log.cuts)
            index.add_receipts(log.records[OURS][:1])
            view.catch_up()
            [found] = view.of_trace(SHOP, trace(0), -1, 5)
            assert view.proof(found) is None
            feed(index, log)
            view.catch_up()
            proof = view.proof(found)
            assert proof is not None
            assert is_proven(log, found, proof)

    @pytest.mark.parametrize(
        "value",
        [
            pytest.param(b"", id="empty"),
            pytest.param(b"no record of ours", id="text"),
            pytest.param(b"\xc3\x01" + bytes(20), id="another-schema"),
            pytest.param(bytes(20), id="of-a-registry"),
        ],
    )
    def test_records_of_other_producers_keep_nothing_from_callers(
        self, open_index: Open, value: bytes
    ) -> None:
        log = ReceiptLog(PARTITIONS)
        with open_index(1000) as (index, view):
            for number in range(2):
                log.sign(OURS, [trace(number)])
                log.cut()
                log.put_raw(OURS, value)
                log.cuts_raw(value)
            log.cuts_raw(log.cuts[0].value or b"")
            feed(index, log, batch=1)
            view.catch_up()
            for receipt in log.receipts[OURS]:
                found = view.of_source(receipt.source)
                assert found is not None
                proof = view.proof(found)
                assert proof is not None
                assert is_proven(log, found, proof)

    def test_the_oldest_are_dropped_and_the_rest_still_proven(
        self, open_index: Open
    ) -> None:
        log = ReceiptLog(PARTITIONS)
        with open_index(100) as (index, view):
            for number in range(1500):
                log.sign(OURS, [trace(number)])
                if number % 100 == 99:
                    log.cut()
                    feed(index, log, batch=50)
            view.catch_up()
            kept = [
                receipt
                for receipt in log.receipts[OURS]
                if view.of_source(receipt.source) is not None
            ]
            assert 100 <= len(kept) < 700
            assert kept == log.receipts[OURS][-len(kept) :]
            for receipt in log.receipts[OURS]:
                found = view.of_trace(SHOP, trace(receipt.seq), -1, 5)
                assert bool(found) == (receipt in kept)
                for one in found:
                    proof = view.proof(one)
                    assert proof is not None
                    assert is_proven(log, one, proof)

    def test_a_log_without_its_beginning_is_proven_from_the_next_cut_on(
        self, open_index: Open
    ) -> None:
        log = ReceiptLog(PARTITIONS)
        for number in range(50):
            log.sign(OURS, [trace(number)])
            if number % 11 == 10:
                log.cut()
        log.cut()
        with open_index(1000) as (index, view):
            rest = log.records[OURS][20:]
            assert not index.add_receipts(rest)
            index.add_cuts(log.cuts)
            assert index.add_receipts(rest)
            view.catch_up()
            for receipt in log.receipts[OURS]:
                found = view.of_source(receipt.source)
                assert (found is None) == (receipt.seq < 22)
                if found is not None:
                    proof = view.proof(found)
                    assert proof is not None
                    assert is_proven(log, found, proof)

    def test_a_second_receipt_of_a_seq_changes_nothing_and_is_said(
        self, open_index: Open, caplog: pytest.LogCaptureFixture
    ) -> None:
        log = ReceiptLog(PARTITIONS)
        first = log.sign(OURS, [trace(1)])
        with open_index(1000) as (index, view):
            feed(index, log)
            log.put(first)
            feed(index, log)
            assert caplog.messages == []
            log.put(replace(first, signed_at_ns=9))
            feed(index, log)
            assert "second receipt claims seq 0" in caplog.text
            log.sign(OURS, [trace(2)])
            log.cut()
            feed(index, log)
            view.catch_up()
            [found] = view.of_trace(SHOP, trace(2), -1, 5)
            proof = view.proof(found)
            assert proof is not None
            assert is_proven(log, found, proof)

    def test_what_is_no_receipt_is_passed_over(self, open_index: Open) -> None:
        log = ReceiptLog(PARTITIONS)
        log.sign(OURS, [trace(1)])
        whole = log.records[OURS][0].value
        assert whole is not None
        bad = replace(log.records[OURS][0], value=whole[:-1])
        with open_index(1000) as (index, view):
            place = Lsn(Partition(OURS), Offset(0))
            moved = replace(log.records[OURS][0], lsn=Lsn(Partition(OURS), Offset(1)))
            assert index.add_receipts([replace(bad, lsn=place), moved])
            view.catch_up()
            assert len(view.of_trace(SHOP, trace(1), -1, 5)) == 1
            assert index.receipt_offsets()[Partition(OURS)] == 2

    def test_key_events_are_told_with_their_places(self, open_index: Open) -> None:
        log = ReceiptLog(PARTITIONS)
        event = KeyEvent(
            log_id=LOG_ID,
            change=KeyChange.ADD,
            role=KeyRole.LOG,
            key_id=KEY_ID,
            public_key=b"der",
            last_good_cut=-1,
            at_ns=1,
            principal=Principal("root"),
            reason="",
        )
        leaf = encode_signed_key_event(
            SignedKeyEvent(event=encode_key_event(event), signatures=())
        )
        log.leaf(leaf, "")
        log.cut()
        log.leaf(leaf, "")
        with open_index(1000) as (index, view):
            feed(index, log)
            view.catch_up()
            assert view.key_events() == [(0, leaf), (2, leaf)]
