from __future__ import annotations

import hmac
from hashlib import sha256
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.sealing import (
    HEAD_BYTES,
    MAX_BODY_BYTES,
    NO_CHAIN,
    SealCheck,
    SealKey,
    SealKeys,
    SealOutcome,
    SealReport,
    chain_after,
    head_of,
    seal_key,
    sealed,
)
from cachemind.errors import InvalidEvent

OLD, NEW = seal_key(bytes(32)), seal_key(bytes(range(32)))
BOTH: SealKeys = {key.key_id: key for key in (OLD, NEW)}
BODIES = [b"", b"first", b"x" * 300, b"last"]


def written(
    bodies: list[bytes], keys: list[SealKey] | None = None, first: int = 0
) -> list[bytes]:
    """Return head and records of a file."""
    pieces = [head_of(first, NO_CHAIN)]
    for number, body in enumerate(bodies):
        key = NEW if keys is None else keys[number]
        pieces.append(sealed(key, chain_after(pieces[-1]), first + number, body))
    return pieces


def check(content: bytes, keys: SealKeys = BOTH) -> tuple[list[bytes], SealReport]:
    walk = SealCheck(BytesIO(content).read, keys)
    return [record.body for record in walk.records()], walk.report()


FILE = written(BODIES, [OLD, OLD, NEW, NEW])
CONTENT = b"".join(FILE)


def test_what_was_written_is_read_and_holds() -> None:
    bodies, report = check(CONTENT)
    assert bodies == BODIES
    assert report == SealReport(
        outcome=SealOutcome.OK,
        first_seq=0,
        records=4,
        chain=chain_after(FILE[-1]),
        good_bytes=len(CONTENT),
        torn_bytes=0,
    )


def test_the_bytes_are_as_described() -> None:
    front = (5).to_bytes(4) + NEW.key_id + (1).to_bytes(8) + b"first"
    head = b"CMSEAL1\n" + (1).to_bytes(8) + bytes(32)
    chain = sha256(head).digest()
    mac = hmac.digest(NEW.secret, b"cachemind/seal/v1" + chain + front, "sha256")
    assert written([b"first"], first=1) == [head, front + mac]
    assert OLD.key_id.hex() == "6a7d208c8367fcbf"


@pytest.mark.parametrize("bits", [0x01, 0x80, 0xFF])
def test_no_byte_is_changed_unseen(bits: int) -> None:
    for at in range(len(CONTENT)):
        changed = bytearray(CONTENT)
        changed[at] ^= bits
        bodies, report = check(bytes(changed))
        assert report.outcome is not SealOutcome.OK, at
        assert BODIES[: len(bodies)] == bodies or report.problem, at


def test_no_record_goes_comes_twice_or_changes_places_unseen() -> None:
    head, *records = FILE
    for at in range(len(records) - 1):
        without = [*records[:at], *records[at + 1 :]]
        twice = [*records[: at + 1], *records[at:]]
        swapped = [*records]
        swapped[at : at + 2] = reversed(swapped[at : at + 2])
        for pieces in (without, twice, swapped):
            _, report = check(b"".join([head, *pieces]))
            assert report.outcome is SealOutcome.TAMPERED


def test_a_record_of_another_file_is_not_at_home_here() -> None:
    other = written([b"other", b"first"])
    _, report = check(b"".join([*FILE[:2], other[2], *FILE[3:]]))
    assert report.outcome is SealOutcome.TAMPERED
    assert report.problem.startswith("record 1:")


def test_whoever_has_no_key_seals_nothing() -> None:
    stranger = SealKey(key_id=NEW.key_id, secret=b"\1" * 32)
    _, report = check(b"".join(written([b"x"], [stranger])))
    assert report.outcome is SealOutcome.TAMPERED


def test_a_file_cut_inside_of_a_record_is_told_and_its_whole_records_count() -> None:
    ends = [HEAD_BYTES]
    for record in FILE[1:]:
        ends.append(ends[-1] + len(record))
    for size in range(len(CONTENT)):
        bodies, report = check(CONTENT[:size])
        whole = [end for end in ends if end <= size]
        assert bodies == BODIES[: max(len(whole) - 1, 0)], size
        good = whole[-1] if whole else 0
        assert (report.good_bytes, report.torn_bytes) == (good, size - good)
        at_an_edge = size in ends
        expected = SealOutcome.OK if at_an_edge else SealOutcome.UNVERIFIABLE
        assert report.outcome is expected, size


def test_what_an_unknown_key_sealed_is_unverifiable_and_named() -> None:
    bodies, report = check(CONTENT, {NEW.key_id: NEW})
    assert bodies == BODIES
    assert report.outcome is SealOutcome.UNVERIFIABLE
    assert OLD.key_id.hex() in report.problem
    assert report.records == 4


def test_what_an_unknown_key_sealed_is_held_by_the_next_known_one() -> None:
    content = bytearray(CONTENT)
    content[HEAD_BYTES + len(FILE[1]) + 20] ^= 1  # In the body of record 1.
    _, report = check(bytes(content), {NEW.key_id: NEW})
    assert report.outcome is SealOutcome.TAMPERED
    assert report.problem.startswith("record 2:")


@given(st.binary(max_size=200))
def test_bytes_at_random_are_no_file(content: bytes) -> None:
    _, report = check(content)
    assert report.outcome is not SealOutcome.OK
    _, report = check(CONTENT + content)
    assert report.outcome is (SealOutcome.OK if not content else report.outcome)
    assert report.records == 4


@given(
    bodies=st.lists(st.binary(max_size=50), max_size=8),
    keys=st.lists(st.sampled_from([OLD, NEW]), min_size=8, max_size=8),
    first=st.integers(0, 2**63),
)
def test_any_records_are_read_back(
    bodies: list[bytes], keys: list[SealKey], first: int
) -> None:
    found, report = check(b"".join(written(bodies, keys, first)))
    assert found == bodies
    assert report.outcome is SealOutcome.OK
    assert report.first_seq == first


def test_a_size_that_cannot_be_is_told_before_it_is_read() -> None:
    huge = (MAX_BODY_BYTES + 1).to_bytes(4) + bytes(16)
    _, report = check(FILE[0] + huge)
    assert report.outcome is SealOutcome.TAMPERED


def test_a_body_that_is_too_large_is_refused() -> None:
    with pytest.raises(InvalidEvent, match="body"):
        sealed(NEW, NO_CHAIN, 0, bytes(MAX_BODY_BYTES + 1))


def test_a_key_that_is_not_32_bytes_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidEvent, match="32 bytes"):
        seal_key(bytes(31))
    assert "secret" not in repr(NEW)
