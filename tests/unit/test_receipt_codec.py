"""Receipts, cuts and key events have one encoding each, which is their schema's."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from io import BytesIO
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cachemind.codec import cuts as cuts_codec
from cachemind.codec import receipts as receipts_codec
from cachemind.codec.cuts import (
    decode_cut,
    decode_cuts_record,
    decode_key_event,
    decode_leaf,
    decode_signed_key_event,
    encode_cut,
    encode_cuts_record,
    encode_key_event,
    encode_signed_key_event,
)
from cachemind.codec.primitives import MAX_LONG, natural, text, time, word
from cachemind.codec.receipts import (
    decode_receipt,
    decode_signed_receipt,
    encode_receipt,
    encode_signed_receipt,
)
from cachemind.errors import UndecodableRecord, UnknownSchema
from cachemind.receipts import (
    NO_LEAF,
    Cut,
    CutIndex,
    CutsRecord,
    KeyChange,
    KeyEvent,
    KeyId,
    KeyRole,
    LogId,
    PartitionHead,
    Receipt,
    ReceiptItem,
    Seq,
    Signature,
    SignedKeyEvent,
    SignedReceipt,
)
from cachemind.types import (
    Lsn,
    Offset,
    Partition,
    Principal,
    Sha256,
    Timeline,
    TraceId,
    WriterId,
)
from cachemind_schemas.loader import AUDIT, current_audit
from tests.unit import receipt_strategies as strategies


@given(
    number=st.integers(0, MAX_LONG)
    | st.integers(0, 62).flatmap(lambda bit: st.integers(1 << bit, (2 << bit) - 1))
    | st.integers(0, 63).map(lambda bit: 1 << bit).filter(lambda one: one <= MAX_LONG)
)
def test_a_time_is_written_as_any_number_is(number: int) -> None:
    assert time(number) == natural(number)


@pytest.mark.parametrize("number", [-1, -(1 << 50), MAX_LONG + 1, 1 << 70])
def test_a_time_that_no_long_holds_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="Avro's long"):
        time(number)


@given(said=st.text())
def test_a_word_is_written_as_any_text_is(said: str) -> None:
    assert word(said) == word(said) == text(said)


@dataclass(frozen=True)
class Kind:
    """One thing on the audit topics, and how it is written and read."""

    name: str
    header: bytes
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    values: st.SearchStrategy[Any]
    example: Any


HASH = Sha256(bytes(range(32)))
OTHER_HASH = Sha256(bytes(range(32, 64)))
KEY = KeyId("0123456789abcdef")
ITEM = ReceiptItem(
    trace_id=TraceId(bytes(range(16))),
    principal=Principal("alice"),
    occurred_at_us=1_750_000_000_123_456,
    outcome="hit_exact",
    context_hash=HASH,
    prompt_hash=OTHER_HASH,
    response_hash=None,
)
RECEIPT = Receipt(
    log_id=LogId("audit.example/cachemind"),
    partition=Partition(3),
    seq=Seq(70),
    previous=NO_LEAF,
    source_topic="cachemind.wal",
    source=Lsn(Partition(3), Offset(12_345)),
    record_hash=HASH,
    kind="reads",
    namespace="tenant-a",
    timeline=Timeline(0),
    writer=WriterId("gateway-1/4711"),
    op_hash=OTHER_HASH,
    items=(ITEM, replace(ITEM, outcome="miss", context_hash=None)),
    signed_at_ns=1_750_000_000_123_456_789,
    key_id=KEY,
)
SIGNATURE = Signature(key_id=KEY, value=bytes(range(64)))
CUT = Cut(
    log_id=LogId("audit.example/cachemind"),
    index=CutIndex(7),
    previous=HASH,
    at_ns=1_750_000_000_123_456_789,
    heads=(
        PartitionHead(partition=Partition(0), size=0, root=HASH, frontier=()),
        PartitionHead(
            partition=Partition(1), size=6, root=HASH, frontier=(HASH, OTHER_HASH)
        ),
    ),
)
KEY_EVENT = KeyEvent(
    log_id=LogId("audit.example/cachemind"),
    change=KeyChange.ADD,
    role=KeyRole.RECEIPT,
    key_id=KEY,
    public_key=bytes(range(91)),
    last_good_cut=-1,
    at_ns=1_750_000_000_123_456_789,
    principal=Principal("alice"),
    reason="first key",
)
KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "Receipt",
            receipts_codec.RECEIPT,
            encode_receipt,
            decode_receipt,
            strategies.RECEIPTS,
            RECEIPT,
        ),
        Kind(
            "SignedReceipt",
            receipts_codec.SIGNED_RECEIPT,
            encode_signed_receipt,
            decode_signed_receipt,
            strategies.SIGNED_RECEIPTS,
            SignedReceipt(receipt=encode_receipt(RECEIPT), signature=SIGNATURE),
        ),
        Kind("Cut", cuts_codec.CUT, encode_cut, decode_cut, strategies.cuts(), CUT),
        Kind(
            "KeyEvent",
            cuts_codec.KEY_EVENT,
            encode_key_event,
            decode_key_event,
            strategies.KEY_EVENTS,
            KEY_EVENT,
        ),
        Kind(
            "SignedKeyEvent",
            cuts_codec.SIGNED_KEY_EVENT,
            encode_signed_key_event,
            decode_signed_key_event,
            strategies.SIGNED_KEY_EVENTS,
            SignedKeyEvent(
                event=encode_key_event(KEY_EVENT), signatures=(SIGNATURE, SIGNATURE)
            ),
        ),
        Kind(
            "CutsRecord",
            cuts_codec.CUTS_RECORD,
            encode_cuts_record,
            decode_cuts_record,
            strategies.CUTS_RECORDS,
            CutsRecord(leaf=encode_cut(CUT), checkpoint="a\n1\nAA==\n\n— a AAAAAAA=\n"),
        ),
    )
}
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
PARSED = {name: parse_schema(json.loads(current_audit(name).text)) for name in AUDIT}


def plain(value: Any) -> Any:
    """Return what fastavro takes."""
    if is_dataclass(value):
        return {part.name: plain(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    return value.value if isinstance(value, KeyChange | KeyRole) else value


@each_kind
def test_the_header_names_the_schema(kind: Kind) -> None:
    assert kind.header == b"\xc3\x01" + current_audit(kind.name).crc64


def test_every_schema_of_the_audit_has_a_codec() -> None:
    assert list(KINDS) == list(AUDIT)


@each_kind
@given(data=st.data())
def test_what_is_written_is_read_back(kind: Kind, data: st.DataObject) -> None:
    value = data.draw(kind.values)
    assert kind.decode(kind.encode(value)) == value


@each_kind
@given(data=st.data())
def test_an_avro_library_writes_and_reads_the_same(
    kind: Kind, data: st.DataObject
) -> None:
    value = data.draw(kind.values)
    out = BytesIO()
    schemaless_writer(out, PARSED[kind.name], plain(value))
    assert kind.encode(value) == kind.header + out.getvalue()

    source = BytesIO(out.getvalue())
    assert schemaless_reader(source, PARSED[kind.name], None) == plain(value)


@each_kind
@given(data=st.data())
def test_any_bytes_are_read_as_written_or_refused(
    kind: Kind, data: st.DataObject
) -> None:
    record = data.draw(st.binary(max_size=300) | st.binary().map(kind.header.__add__))
    try:
        value = kind.decode(record)
    except (UndecodableRecord, UnknownSchema):
        return
    assert kind.encode(value) == record


@each_kind
def test_every_mutated_byte_is_another_value_or_refused(kind: Kind) -> None:
    record = kind.encode(kind.example)
    for at in range(len(record)):
        for change in (0x01, 0x02, 0x10, 0x80, 0xFF):
            mutated = bytearray(record)
            mutated[at] ^= change
            try:
                value = kind.decode(bytes(mutated))
            except (UndecodableRecord, UnknownSchema):
                continue
            assert value != kind.example
            assert kind.encode(value) == mutated


@each_kind
def test_a_cut_record_and_bytes_left_over_are_refused(kind: Kind) -> None:
    record = kind.encode(kind.example)
    for end in range(len(record)):
        with pytest.raises(UndecodableRecord):
            kind.decode(record[:end])
    for more in (b"\x00", b"\x02", record):
        with pytest.raises(UndecodableRecord):
            kind.decode(record + more)


@each_kind
def test_another_schema_is_named(kind: Kind) -> None:
    record = bytearray(kind.encode(kind.example))
    record[2] ^= 1
    shown = bytes(record[2:10])[::-1].hex()
    with pytest.raises(UnknownSchema, match=shown):
        kind.decode(bytes(record))
    with pytest.raises(UnknownSchema, match="audit schema 7,"):
        kind.decode(b"\x00\x00\x00\x00\x07" + bytes(record))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(strategies.RECEIPTS, strategies.RECEIPTS)
def test_two_receipts_never_share_their_bytes(one: Receipt, other: Receipt) -> None:
    assert (encode_receipt(one) == encode_receipt(other)) == (one == other)


LONG_ZERO = b"\x80\x00"
"""Zero as a long of two bytes: legal Avro, and not the shortest."""


def _split(record: bytes, at: int, size: int = 1) -> tuple[bytes, bytes, bytes]:
    return record[:at], record[at : at + size], record[at + size :]


def test_a_longer_form_of_a_number_is_refused() -> None:
    bare = replace(RECEIPT, partition=Partition(0), items=())
    before, zero, after = _split(encode_receipt(bare), 74)
    assert zero == b"\x00"
    longer = before + LONG_ZERO + after
    found = schemaless_reader(BytesIO(longer[10:]), PARSED["Receipt"], None)
    assert found == plain(bare)
    with pytest.raises(UndecodableRecord, match="one encoding"):
        decode_receipt(longer)


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(b"\x02%b\x02%b\x00", id="two-blocks"),
        pytest.param(b"\x01\xa2\x01%b\x01\xa2\x01%b\x00", id="blocks-with-sizes"),
    ],
)
def test_an_array_in_blocks_is_refused(array: bytes) -> None:
    signatures = b"\x20" + KEY.encode() + SIGNATURE.value
    event = SignedKeyEvent(event=b"e", signatures=(SIGNATURE, SIGNATURE))
    record = encode_signed_key_event(event)
    head, tail = record[:12], record[12:]
    assert tail == b"\x04" + 2 * signatures + b"\x00"
    blocks = head + array % (signatures, signatures)
    found = schemaless_reader(BytesIO(blocks[10:]), PARSED["SignedKeyEvent"], None)
    assert found == plain(event)
    with pytest.raises(UndecodableRecord):
        decode_signed_key_event(blocks)


@pytest.mark.parametrize(
    ("value", "at", "wrong"),
    [
        pytest.param(RECEIPT, 74, b"\x07", id="partition-below-zero"),
        pytest.param(RECEIPT, 74, b"\xfe\xff\xff\xff\x1f", id="partition-past-int"),
        pytest.param(RECEIPT, 75, b"\xff\x01", id="seq-below-zero"),
        pytest.param(RECEIPT, 75, b"\xfe" + 8 * b"\xff" + b"\x03", id="past-long"),
        pytest.param(RECEIPT, 75, 200 * b"\xff", id="a-number-without-end"),
    ],
)
def test_a_number_out_of_range_is_refused(
    value: Receipt, at: int, wrong: bytes
) -> None:
    width = 2 if at == 75 else 1
    before, _, after = _split(encode_receipt(value), at, width)
    with pytest.raises(UndecodableRecord):
        decode_receipt(before + wrong + after)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(KEY.encode(), KEY.upper().encode(), id="key-id-in-capitals"),
        pytest.param(b"\x10tenant-a", b"\x10tenant-\xff", id="not-utf-8"),
        pytest.param(b"\x10tenant-a", b"\x0ftenant-a", id="length-below-zero"),
        pytest.param(b"\x10tenant-a", b"\xfe\x7ftenant-a", id="length-past-the-end"),
    ],
)
def test_a_text_that_is_none_is_refused(old: bytes, new: bytes) -> None:
    record = encode_receipt(RECEIPT)
    assert record.count(old) == 1
    with pytest.raises(UndecodableRecord):
        decode_receipt(record.replace(old, new))


@pytest.mark.parametrize("at", [10, 11], ids=["change", "role"])
@pytest.mark.parametrize("symbol", [b"\x00", b"\x08", b"\x7e"])
def test_a_symbol_that_this_build_lacks_is_named(at: int, symbol: bytes) -> None:
    before, _, after = _split(encode_key_event(KEY_EVENT), at)
    with pytest.raises(UnknownSchema, match="of a key event"):
        decode_key_event(before + symbol + after)


def test_huge_counts_end_at_once() -> None:
    record = encode_cut(CUT)
    head = record[: record.index(b"\x04" + HASH)]
    with pytest.raises(UndecodableRecord):
        decode_cut(
            head + b"\xfe" + 7 * b"\xff" + b"\x7f" + 3 * (HASH + b"\x00\x00\x00")
        )


@pytest.mark.parametrize(
    "broken",
    [
        replace(RECEIPT, partition=Partition(2**31)),
        replace(RECEIPT, seq=Seq(2**63)),
        replace(RECEIPT, source=Lsn(Partition(0), Offset(-1))),
        replace(RECEIPT, namespace="\ud800"),
    ],
)
def test_what_has_no_encoding_is_an_error(broken: Receipt) -> None:
    with pytest.raises(ValueError, match=r"Avro|surrogate"):
        encode_receipt(broken)


def test_a_leaf_is_told_by_its_header() -> None:
    signed = KINDS["SignedKeyEvent"].example
    assert decode_leaf(encode_cut(CUT)) == CUT
    assert decode_leaf(encode_signed_key_event(signed)) == signed
    with pytest.raises(UnknownSchema):
        decode_leaf(encode_receipt(RECEIPT))
    with pytest.raises(UndecodableRecord):
        decode_leaf(b"")


def test_previous_and_record_hash_are_at_a_constant_place() -> None:
    record = encode_receipt(replace(RECEIPT, previous=OTHER_HASH))
    assert record[10:42] == OTHER_HASH
    assert record[42:74] == HASH
