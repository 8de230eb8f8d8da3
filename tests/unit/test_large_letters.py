"""Dead letters of records that no topic would take as they are."""

from __future__ import annotations

from hashlib import sha256

from cachemind.agents.dead_letters import Reason, Rejected, dead_letter
from cachemind.core.dead_letter import Letter, read_dead_letter
from cachemind.core.topics import MAX_RECORD_BYTES
from cachemind.ports import LogRecord
from cachemind.types import Lsn, Offset, Partition


def buried(value: bytes) -> Letter:
    record = LogRecord(
        lsn=Lsn(Partition(1), Offset(2)),
        key=b"k",
        value=value,
        headers=(("h", b"x"),),
        timestamp_ms=3,
    )
    rejected = Rejected(record=record, reason=Reason.UNDECODABLE, detail="noise")
    key, found, headers = dead_letter("t.requests", rejected)
    letter = read_dead_letter(key, found, headers)
    assert isinstance(letter, Letter)
    assert letter.source.lsn == record.lsn
    return letter


def test_the_largest_record_that_a_topic_takes_is_kept_whole() -> None:
    value = bytes(MAX_RECORD_BYTES - 3)
    letter = buried(value)
    assert (letter.value, letter.key, letter.detail) == (value, b"k", "noise")


def test_of_a_larger_one_the_hash_is_kept() -> None:
    value = bytes(MAX_RECORD_BYTES - 2)
    letter = buried(value)
    assert (letter.value, letter.key, letter.headers) == (b"", None, ())
    assert letter.detail.startswith("noise; ")
    assert letter.detail.endswith(sha256(value).hexdigest())
