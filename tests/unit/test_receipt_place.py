"""What is read of a receipt's bytes without decoding it is what the receipt says."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.codec.receipt_place import place_of, receipt_in
from cachemind.codec.receipts import decode_receipt, decode_signed_receipt
from cachemind.errors import UndecodableRecord, UnknownSchema
from tests.unit.signing_cases import Signed


def some_records() -> list[bytes]:
    log = Signed()
    log.append(3)
    log.append_raw(b"no event")
    log.add_first_keys()
    log.sign_all()
    return [record.value or b"" for record in log.records(log.audit)]


RECORDS = some_records()


@pytest.mark.parametrize("record", RECORDS)
def test_a_place_is_what_the_whole_receipt_says(record: bytes) -> None:
    signed = decode_signed_receipt(record)
    assert receipt_in(record) == signed.receipt
    receipt, place = decode_receipt(signed.receipt), place_of(signed.receipt)
    for name, value in place._asdict().items():
        assert getattr(receipt, name) == value


@given(record=st.sampled_from(RECORDS), data=st.data())
def test_whatever_the_bytes_are_it_raises_our_errors_alone(
    record: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(record) - 1))
    broken = bytearray(record[: data.draw(st.integers(0, len(record)))])
    if at < len(broken):
        broken[at] ^= data.draw(st.integers(1, 255))
    with suppress(UndecodableRecord, UnknownSchema):
        place_of(receipt_in(bytes(broken)))
