"""What a host keeps of the log of cuts saves it the reading, and never misleads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachemind.adapters.key_verify import OpensslCheck
from cachemind.agents.cuts_log import CutsLog
from cachemind.agents.cuts_resume import begun, keep
from cachemind.receipts import KeyChange, KeyRole
from cachemind.types import Offset
from tests.unit.signing_cases import LOG_ID, ZERO, Signed


def begin(log: Signed) -> tuple[CutsLog, Offset]:
    return begun(LOG_ID, log.cuts.reader(), log.memory, log.verify, OpensslCheck())


def read_on(log: Signed, known: CutsLog, start: Offset) -> CutsLog:
    for record in log.records(log.cuts):
        if record.lsn.offset >= start:
            known.take(record.value or b"", "here")
    return known


def kept_at(log: Signed, leaves: int) -> bool:
    """Keep what is known after so many leaves; return whether it was kept."""
    known = CutsLog(LOG_ID, log.verify)
    for record in log.records(log.cuts)[:leaves]:
        known.take(record.value or b"", "here")
        keep(known, record.lsn.offset, log.memory)
    return log.memory.content is not None


def facts(known: CutsLog) -> tuple[object, ...]:
    return (
        known.leaves.size,
        known.leaves.root(),
        known.leaves.previous,
        known.keys.signers(KeyRole.RECEIPT),
        known.keys.signers(KeyRole.LOG),
        known.last,
        known.key_events,
    )


def grown() -> Signed:
    log = Signed()
    log.add_first_keys()
    for number in range(4):
        log.append(2)
        log.sign_all()
        log.cut_all()
        if number == 1:
            log.key_event(KeyChange.ADD, KeyRole.RECEIPT, "receipt-2")
        if number == 2:
            log.key_event(KeyChange.RETIRE, KeyRole.RECEIPT, "receipt-1")
            log.key_event(KeyChange.ADD, KeyRole.LOG, "log-2")
    log.sign_all()
    log.cut_all()
    return log


LOG = grown()


@given(leaves=st.integers(0, len(LOG.records(LOG.cuts))))
@settings(deadline=None)
def test_going_on_is_the_same_as_reading_all(leaves: int) -> None:
    LOG.memory.content = None
    whole = facts(read_on(LOG, CutsLog(LOG_ID, LOG.verify), Offset(0)))
    was_kept = kept_at(LOG, leaves)
    known, start = begin(LOG)
    assert (start > 0) is was_kept
    assert facts(read_on(LOG, known, start)) == whole


def another_node(content: dict[str, Any]) -> None:
    content["nodes"][0] = "00" * 32


def another_size(content: dict[str, Any]) -> None:
    content["size"] += 1


def no_log_key(content: dict[str, Any]) -> None:
    content["told"] = content["told"][:1]


def a_forged_event(content: dict[str, Any]) -> None:
    import base64

    leaf = base64.b64encode(LOG.unsigned_event()).decode()
    content["told"].append([1, leaf])


def another_place(content: dict[str, Any]) -> None:
    content["offset"] -= 2


def no_place(content: dict[str, Any]) -> None:
    content["offset"] = 10**6


def of_another_type(content: dict[str, Any]) -> None:
    content["told"] = 7


@pytest.mark.parametrize(
    "harm",
    [
        another_node,
        another_size,
        no_log_key,
        a_forged_event,
        another_place,
        no_place,
        of_another_type,
        dict.clear,
    ],
)
def test_what_does_not_hold_is_read_anew(harm: Callable[[Any], None]) -> None:
    assert kept_at(LOG, len(LOG.records(LOG.cuts)))
    content = orjson.loads(LOG.memory.content or b"")
    harm(content)
    LOG.memory.content = orjson.dumps(content)
    known, start = begin(LOG)
    assert start == 0
    assert known.leaves.size == 0


def test_what_is_no_json_is_read_anew() -> None:
    LOG.memory.content = b"\xff"
    assert begin(LOG)[1] == 0


def test_of_another_log_nothing_counts() -> None:
    assert kept_at(LOG, len(LOG.records(LOG.cuts)))
    other = Signed()
    other.add_first_keys()
    other.append(30)
    other.sign_all()
    other.cut_all()
    other.memory = LOG.memory
    assert begin(other)[1] == 0


def test_a_cutter_goes_on_from_what_was_kept() -> None:
    log = grown()
    assert kept_at(log, len(log.records(log.cuts)))
    log.append(3)
    log.sign_all()
    before = log.records(log.cuts)
    log.cut_all()
    assert not log.metrics.why
    read_on(log, CutsLog(LOG_ID, log.verify), Offset(0))
    assert len(log.records(log.cuts)) > len(before)
    assert log.cuts.reader().bounds(ZERO)[0] == 0
