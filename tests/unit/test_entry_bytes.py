from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachemind.core.entry_bytes import decode, encode, expiry, same, serving
from cachemind.core.state import Entry
from cachemind.errors import CorruptState
from cachemind.types import EncoderId, Offset, Timeline, Version
from tests import strategies
from tests.vectors.make_state import BARE, ENTRY, PATH

entries = st.builds(
    Entry,
    exact_key=strategies.exact_keys,
    context_key=strategies.context_keys,
    event_id=strategies.event_ids,
    offset=strategies.counts.map(Offset),
    version=strategies.counts.map(Version),
    timeline=strategies.counts.map(Timeline),
    stored_at_ns=strategies.times_ns,
    expires_at_ns=strategies.times_ns,
    pinned=st.booleans(),
    right=strategies.counts,
    wrong=strategies.counts,
    prompt_hash=strategies.hashes,
    request_hash=strategies.hashes,
    response_hash=strategies.hashes,
    snapshot_id=strategies.hex32,
    semantic_key=strategies.texts,
    encoder_id=strategies.texts.map(EncoderId),
    model=strategies.texts,
    parameters=strategies.texts,
    finish_reason=strategies.texts,
    tags=st.lists(strategies.texts, max_size=3).map(tuple),
    source_chunks=st.lists(strategies.hashes, max_size=3).map(tuple),
    prompt=st.none() | strategies.texts,
    embedding=st.none() | st.binary(max_size=16),
    response=st.binary(max_size=64),
)


@given(entry=entries)
def test_an_entry_survives_its_bytes(entry: Entry) -> None:
    raw = encode(entry)
    assert decode(raw) == entry
    assert encode(decode(raw)) == raw


@given(entry=entries)
def test_how_long_an_entry_lives_is_read_from_its_head(entry: Entry) -> None:
    assert expiry(encode(entry)) == (entry.expires_at_ns, entry.pinned)


@given(entry=entries)
def test_a_hit_is_served_from_the_head_alone(entry: Entry) -> None:
    served = serving(encode(entry))
    for name in (
        "offset",
        "version",
        "timeline",
        "stored_at_ns",
        "expires_at_ns",
        "pinned",
        "prompt_hash",
        "response_hash",
        "response",
    ):
        assert getattr(served, name) == getattr(entry, name)


@settings(deadline=None)
@given(entry=entries, data=st.data())
def test_a_cut_or_longer_entry_is_refused(entry: Entry, data: st.DataObject) -> None:
    raw = encode(entry)
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(CorruptState):
        decode(raw[:cut])
    with pytest.raises(CorruptState):
        decode(raw + b"\x00")


@given(raw=st.binary(max_size=600))
def test_arbitrary_bytes_raise_only_our_error(raw: bytes) -> None:
    for start in (b"", b"\x01\x00", b"\x01\x07"):
        with pytest.raises(CorruptState):
            decode(start + raw)


@pytest.mark.parametrize(
    ("at", "byte", "says"),
    [
        pytest.param(0, 2, "format 2", id="another-format"),
        pytest.param(1, 8, "unknown flags 8", id="unknown-flag"),
        pytest.param(106, 255, "ends at byte", id="response-past-the-end"),
    ],
)
def test_a_wrong_head_is_named(at: int, byte: int, says: str) -> None:
    raw = bytearray(encode(ENTRY))
    raw[at] = byte
    with pytest.raises(CorruptState, match=says):
        serving(bytes(raw))


def test_text_that_is_not_utf8_is_corrupt() -> None:
    raw = encode(replace(BARE, semantic_key="ab"))
    with pytest.raises(CorruptState, match="UTF-8"):
        decode(raw.replace(b"ab", b"\xff\xfe"))


@pytest.mark.parametrize(
    ("name", "entry"),
    [("entry", ENTRY), ("entry without prompt and vector", BARE)],
)
def test_entry_bytes_are_those_of_the_vectors(name: str, entry: Entry) -> None:
    known = json.loads(PATH.read_text(encoding="utf-8"))["rows"][name]
    assert encode(entry).hex() == known
    assert decode(bytes.fromhex(known)) == entry


@given(entry=entries)
def test_an_entry_remembers_no_bytes_but_its_own(entry: Entry) -> None:
    raw = encode(entry)
    assert encode(replace(decode(raw))) == raw
    assert encode(entry) is raw
    other = replace(entry, right=entry.right + 1)
    assert other.encoded is None
    assert decode(encode(other)) == other


@given(entry=entries)
def test_whether_its_bytes_are_known_is_no_part_of_an_entry(entry: Entry) -> None:
    unknown = replace(entry)
    encode(entry)
    assert unknown == entry
    assert repr(unknown) == repr(entry)
    assert hash(unknown) == hash(entry)
    assert same(unknown, entry)


@given(one=entries, other=entries)
def test_entries_are_the_same_where_their_bytes_are(one: Entry, other: Entry) -> None:
    assert same(one, other) == (one == other)
    assert not same(one, None)
    assert not same(None, one)
    assert same(None, None)
