"""Hypothesis strategies for everything that is on the audit topics."""

from __future__ import annotations

from hypothesis import strategies as st

from cachemind.receipts import (
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

LONGS = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))
INTS = st.one_of(st.integers(0, 300), st.integers(0, 2**31 - 1))
TEXTS = st.text(max_size=80)
HASHES = st.binary(min_size=32, max_size=32).map(Sha256)
KEY_IDS = st.text("0123456789abcdef", min_size=16, max_size=16).map(KeyId)
LSNS = st.builds(Lsn, INTS.map(Partition), LONGS.map(Offset))
ITEMS = st.builds(
    ReceiptItem,
    trace_id=st.binary(min_size=16, max_size=16).map(TraceId),
    principal=TEXTS.map(Principal),
    occurred_at_us=LONGS,
    outcome=TEXTS,
    context_hash=st.none() | HASHES,
    prompt_hash=st.none() | HASHES,
    response_hash=st.none() | HASHES,
)
RECEIPTS = st.builds(
    Receipt,
    log_id=TEXTS.map(LogId),
    partition=INTS.map(Partition),
    seq=LONGS.map(Seq),
    previous=HASHES,
    source_topic=TEXTS,
    source=LSNS,
    record_hash=HASHES,
    kind=TEXTS,
    namespace=TEXTS,
    timeline=LONGS.map(Timeline),
    writer=TEXTS.map(WriterId),
    op_hash=st.none() | HASHES,
    items=st.lists(ITEMS, max_size=3).map(tuple),
    signed_at_ns=LONGS,
    key_id=KEY_IDS,
)
SIGNATURES = st.builds(
    Signature, key_id=KEY_IDS, value=st.binary(min_size=64, max_size=64)
)
SIGNED_RECEIPTS = st.builds(
    SignedReceipt, receipt=st.binary(max_size=400), signature=SIGNATURES
)


@st.composite
def heads(draw: st.DrawFn, partition: int) -> PartitionHead:
    """One partition's head, with as many roots as its size demands."""
    size = draw(st.one_of(st.integers(0, 100), st.integers(0, 2**63 - 1)))
    count = size.bit_count()
    return PartitionHead(
        partition=Partition(partition),
        size=size,
        root=draw(HASHES),
        frontier=tuple(draw(st.lists(HASHES, min_size=count, max_size=count))),
    )


@st.composite
def cuts(draw: st.DrawFn) -> Cut:
    """A cut over up to four partitions."""
    partitions = draw(st.integers(0, 4))
    return Cut(
        log_id=LogId(draw(TEXTS)),
        index=CutIndex(draw(LONGS)),
        previous=draw(HASHES),
        at_ns=draw(LONGS),
        heads=tuple(draw(heads(number)) for number in range(partitions)),
    )


KEY_EVENTS = st.builds(
    KeyEvent,
    log_id=TEXTS.map(LogId),
    change=st.sampled_from(KeyChange),
    role=st.sampled_from(KeyRole),
    key_id=KEY_IDS,
    public_key=st.binary(min_size=1, max_size=100),
    last_good_cut=st.just(-1) | LONGS,
    at_ns=LONGS,
    principal=TEXTS.map(Principal),
    reason=TEXTS,
)
SIGNED_KEY_EVENTS = st.builds(
    SignedKeyEvent,
    event=st.binary(max_size=200),
    signatures=st.lists(SIGNATURES, max_size=3).map(tuple),
)
CUTS_RECORDS = st.builds(CutsRecord, leaf=st.binary(max_size=400), checkpoint=TEXTS)
