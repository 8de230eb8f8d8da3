from __future__ import annotations

import base64
import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from cachemind.adapters.key_verify import OpensslCheck
from cachemind.adapters.memory_keys import MemoryKey
from cachemind.adapters.memory_receipts import MemoryReceiptIndex
from cachemind.codec.audit_decoder import AuditDecoding
from cachemind.codec.evidence import read_evidence, shown_evidence
from cachemind.core.audit_evidence import evidence_problems
from cachemind.core.audit_findings import Reason
from cachemind.core.audit_means import Means, Pinned, RootKey
from cachemind.errors import UndecodableRecord, UnknownSchema
from cachemind.events import Invalidated, SelectorKind
from cachemind.ports.log import LogRecord
from cachemind.receipts import KeyChange, KeyRole, LogId
from cachemind.types import Lsn, Namespace, Offset, Partition
from tests.audit_dump import PINNED, Dump, DumpMaker

MEANS = Means(decoder=AuditDecoding(), checks=OpensslCheck(), pinned=PINNED)
SHOP = Namespace("shop")
EVENT = Invalidated(kind=SelectorKind.ALL, value="", reason="test")
FIRST = MemoryKey("evidence: receipt 1")
SECOND = MemoryKey("evidence: receipt 2")
LOG_KEY = MemoryKey("evidence: log")
PARTITIONS = 2


def rotated() -> DumpMaker:
    """A log whose receipt key was exchanged after its third cut."""
    maker = DumpMaker(partitions=PARTITIONS, receipt_key=FIRST, log_key=LOG_KEY)
    maker.key_event(KeyChange.ADD, KeyRole.LOG, LOG_KEY)
    maker.key_event(KeyChange.ADD, KeyRole.RECEIPT, FIRST)
    for number in range(3):
        for _ in range(4 + number):
            maker.append(EVENT, SHOP)
        maker.cut()
    maker.key_event(KeyChange.ADD, KeyRole.RECEIPT, SECOND)
    maker.key_event(KeyChange.RETIRE, KeyRole.RECEIPT, FIRST)
    maker.cut()
    maker.receipt_key = SECOND
    for _ in range(3):
        maker.append(EVENT, SHOP)
    maker.cut()
    return maker


def indexed(dump: Dump) -> MemoryReceiptIndex:
    index = MemoryReceiptIndex(PARTITIONS)
    for number, values in enumerate(dump.receipts):
        assert index.add_receipts(_records(number, values))
    index.add_cuts(_records(0, dump.cuts))
    return index


def _records(partition: int, values: tuple[bytes, ...]) -> list[LogRecord]:
    return [
        LogRecord(
            lsn=Lsn(Partition(partition), Offset(at)),
            key=None,
            value=value,
            headers=(),
            timestamp_ms=1,
        )
        for at, value in enumerate(values)
    ]


def evidence_of(dump: Dump) -> Iterator[dict[str, Any]]:
    """Yield the evidence of every receipt, as JSON that has been sent."""
    index = indexed(dump)
    for number, values in enumerate(dump.receipts):
        for at in range(len(values)):
            found = index.of_source(Lsn(Partition(number), Offset(2 * at + 1)))
            assert found is not None
            proof = index.proof(found)
            if proof is not None:
                shown = shown_evidence(found, proof, index.key_events())
                yield json.loads(json.dumps(shown))


@cache
def _whole() -> str:
    return json.dumps(list(evidence_of(rotated().dump())))


def whole() -> list[dict[str, Any]]:
    parsed: list[dict[str, Any]] = json.loads(_whole())
    return parsed


def of_shop() -> dict[str, Any]:
    """Return the evidence of a receipt in the midst of the log."""
    found = [one for one in whole() if one["receipt"]["namespace"] == SHOP]
    return found[7]


def reasons(shown: dict[str, Any], means: Means = MEANS) -> set[str]:
    return {one.reason for one in evidence_problems(read_evidence(shown), means)}


def test_every_receipt_of_a_log_is_proven_also_after_a_key_was_exchanged() -> None:
    found = whole()
    assert len(found) == 22
    signers = {one["signature"]["key_id"] for one in found}
    assert signers == {FIRST.key_id, SECOND.key_id}
    assert all(reasons(one) == set() for one in found)


def _flipped(encoded: str, at: int) -> str:
    raw = bytearray(base64.b64decode(encoded))
    raw[at] ^= 1
    return base64.b64encode(bytes(raw)).decode()


def _at(shown: Any, way: list[str | int]) -> Any:
    for step in way:
        shown = shown[step]
    return shown


@pytest.mark.parametrize(
    "place",
    [
        ("receipt_bytes",),
        ("signature", "value"),
        ("cut", "leaf_bytes"),
        ("keys", 0, "leaf_bytes"),
    ],
)
def test_no_byte_of_it_can_be_changed(place: tuple[str | int, ...]) -> None:
    way, last = list(place[:-1]), place[-1]
    original = of_shop()
    for at in range(len(base64.b64decode(_at(original, way)[last]))):
        changed = copy.deepcopy(original)
        holder = _at(changed, way)
        holder[last] = _flipped(holder[last], at)
        try:
            assert reasons(changed) != set(), at
        except (UndecodableRecord, UnknownSchema):
            continue


@pytest.mark.parametrize("way", [["inclusion"], ["cut", "inclusion"]])
def test_no_node_of_a_path_can_be_changed_or_left_out(way: list[str | int]) -> None:
    for original in (of_shop(), whole()[-1]):
        for at in range(len(_at(original, way)["path"])):
            changed, cut = copy.deepcopy(original), copy.deepcopy(original)
            path = _at(changed, way)["path"]
            path[at] = path[at][:-1] + ("0" if path[at][-1] != "0" else "1")
            del _at(cut, way)["path"][at]
            assert reasons(changed) in ({Reason.ROOT}, {Reason.CHECKPOINT_ROOT})
            assert reasons(cut) in ({Reason.ROOT}, {Reason.CHECKPOINT_ROOT})


def test_a_changed_checkpoint_is_found() -> None:
    shown = of_shop()
    lines = shown["checkpoint"].split("\n")
    for at in range(len(lines[2])):
        other = "A" if lines[2][at] != "A" else "B"
        root = lines[2][:at] + other + lines[2][at + 1 :]
        shown["checkpoint"] = "\n".join([*lines[:2], root, *lines[3:]])
        expected = {Reason.CHECKPOINT_SIGNATURE, Reason.CHECKPOINT_MALFORMED}
        assert reasons(shown) & expected


def test_the_checkpoint_of_another_cut_is_found() -> None:
    shown = of_shop()
    shown["checkpoint"] = whole()[-1]["checkpoint"]
    assert Reason.CHECKPOINT_OF_OTHER_CUT in reasons(shown)


def test_who_pins_another_root_believes_nothing() -> None:
    other = MemoryKey("evidence: another root")
    root = RootKey(key_id=other.key_id, public_key=other.public_key)
    means = replace(MEANS, pinned=replace(PINNED, roots=(root,)))
    assert Reason.KEY_EVENT_UNSIGNED in reasons(of_shop(), means)


def test_a_receipt_of_another_log_is_found() -> None:
    pinned = Pinned(log_id=LogId("other.example/log"), roots=PINNED.roots)
    assert Reason.OTHER_LOG in reasons(of_shop(), replace(MEANS, pinned=pinned))


def test_a_key_whose_adding_is_not_shown_is_unknown() -> None:
    shown = of_shop()
    keys = shown["keys"]
    shown["keys"] = [one for one in keys if one["event"]["key_id"] != FIRST.key_id]
    assert reasons(shown) == {Reason.UNKNOWN_KEY}


def test_the_old_key_may_sign_nothing_after_the_exchange() -> None:
    maker = rotated()
    maker.receipt_key = FIRST
    maker.append(EVENT, SHOP)
    maker.cut()
    found = list(evidence_of(maker.dump()))
    late = [one for one in found if one["cut"]["index"] == maker.next_index() - 1]
    assert [reasons(one) for one in late] == [{Reason.KEY_RETIRED}]


def test_the_new_key_may_sign_nothing_before_it_is_added() -> None:
    maker = rotated()
    early = MemoryKey("evidence: receipt 3")
    maker.receipt_key = early
    maker.append(EVENT, SHOP)
    maker.cut()
    maker.receipt_key = SECOND
    maker.key_event(KeyChange.ADD, KeyRole.RECEIPT, early)
    found = list(evidence_of(maker.dump()))
    [one] = [one for one in found if one["signature"]["key_id"] == early.key_id]
    assert reasons(one) == {Reason.KEY_NOT_ADDED_YET}


def test_a_revoked_key_counts_up_to_its_last_good_cut() -> None:
    maker = rotated()
    good = 3
    maker.key_event(KeyChange.REVOKE, KeyRole.RECEIPT, FIRST, good)
    by_cut: dict[int, set[str]] = {}
    for one in evidence_of(maker.dump()):
        if one["signature"]["key_id"] == FIRST.key_id:
            by_cut.setdefault(one["cut"]["index"], set()).update(reasons(one))
    assert {cut <= good for cut in by_cut} == {True, False}
    for cut, found in by_cut.items():
        assert found == (set() if cut <= good else {Reason.KEY_REVOKED})


def test_a_log_key_may_not_sign_receipts() -> None:
    maker = rotated()
    maker.receipt_key = LOG_KEY
    maker.append(EVENT, SHOP)
    maker.cut()
    found = list(evidence_of(maker.dump()))
    [one] = [one for one in found if one["signature"]["key_id"] == LOG_KEY.key_id]
    assert reasons(one) == {Reason.KEY_OF_OTHER_ROLE}


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param([], id="no-object"),
        pytest.param({"signature": 7}, id="no-signature"),
        pytest.param({"receipt_bytes": "?"}, id="no-base64"),
        pytest.param({"inclusion": {"path": ["zz"]}}, id="no-hex"),
        pytest.param({"inclusion": {"path": ["00"]}}, id="no-hash"),
        pytest.param({"inclusion": {"path": ["00" * 32] * 65}}, id="endless-path"),
        pytest.param({"keys": [{"index": -1}]}, id="no-place"),
        pytest.param({"checkpoint": None}, id="no-checkpoint"),
    ],
)
def test_what_is_no_evidence_is_refused(broken: object) -> None:
    given = {**of_shop(), **broken} if isinstance(broken, dict) else broken
    with pytest.raises(UndecodableRecord, match=r"evidence: "):
        read_evidence(given)
