"""What the headers of the dead-letter topic say, whatever a record's own say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.dead_letter import (
    HEADER_PREFIX,
    REPLAY_OF,
    Letter,
    Replay,
    Source,
    letter_headers,
    put_back,
    read_dead_letter,
    replay_headers,
)
from cachemind.errors import UndecodableRecord
from cachemind.types import Lsn, Offset, Partition

OURS = [
    HEADER_PREFIX + name
    for name in ("topic", "lsn", "reason", "key", "null-value", "replayed", "by")
]
headers = st.lists(
    st.tuples(st.sampled_from(OURS) | st.text(max_size=8), st.binary(max_size=8)),
    max_size=8,
).map(tuple)
sources = st.builds(
    Source,
    topic=st.from_regex(r"[a-z.]{1,20}", fullmatch=True),
    lsn=st.builds(
        Lsn,
        st.integers(0, 9).map(Partition),
        st.integers(0, 2**40).map(Offset),
    ),
)
letters = st.builds(
    Letter,
    source=sources,
    reason=st.sampled_from(["undecodable", "a_word_of_a_newer_build"]),
    detail=st.text(max_size=20),
    timestamp_ms=st.integers(-1, 2**42),
    key=st.none() | st.binary(max_size=8),
    value=st.none() | st.binary(max_size=20),
    headers=headers,
)
LETTER = Letter(
    source=Source(topic="t.requests", lsn=Lsn(Partition(1), Offset(7))),
    reason="no_reply",
    detail="there is no topic nowhere",
    timestamp_ms=5,
    key=b"alpha",
    value=b"bytes",
    headers=(("reply-to", b"nowhere"),),
)


@given(letter=letters)
def test_a_letter_is_read_as_it_was_written_whatever_its_record_carries(
    letter: Letter,
) -> None:
    read = read_dead_letter(
        letter.source.topic.encode(), letter.value or b"", letter_headers(letter)
    )
    assert read == letter


@given(source=sources, by=st.text(max_size=20))
def test_a_note_is_read_as_it_was_written(source: Source, by: str) -> None:
    note = Replay(source=source, by=by)
    assert read_dead_letter(source.topic.encode(), b"", replay_headers(note)) == note


def test_a_record_that_looks_like_a_note_is_a_letter_when_it_is_buried() -> None:
    forged = replay_headers(Replay(source=LETTER.source, by="nobody"))
    buried = Letter(
        source=Source(topic="t.requests", lsn=Lsn(Partition(0), Offset(1))),
        reason="undecodable",
        detail="",
        timestamp_ms=-1,
        key=b"alpha",
        value=b"",
        headers=forged,
    )
    assert read_dead_letter(b"t.requests", b"", letter_headers(buried)) == buried


@pytest.mark.parametrize(
    ("key", "found", "problem"),
    [
        (None, (), "of which topic"),
        (b"t", (), "has no header cachemind-dlq-replayed"),
        (b"t", ((HEADER_PREFIX + "replayed", b"x"), (OURS[-1], b"")), "PARTITION@"),
        (b"t", letter_headers(LETTER)[:-4], "has no header cachemind-dlq-reason"),
        (
            b"t",
            ((HEADER_PREFIX + "timestamp-ms", b"1"), *letter_headers(LETTER)[1:5]),
            "has no header cachemind-dlq-timestamp-ms",
        ),
        (
            b"t",
            (*letter_headers(LETTER), (HEADER_PREFIX + "timestamp-ms", b"soon")),
            "timestamp-ms is not a number",
        ),
    ],
)
def test_what_another_wrote_is_no_dead_letter(
    key: bytes | None, found: tuple[tuple[str, bytes], ...], problem: str
) -> None:
    with pytest.raises(UndecodableRecord, match=problem):
        read_dead_letter(key, b"", found)


def test_what_is_put_back_says_where_it_was() -> None:
    assert put_back(LETTER) == (*LETTER.headers, (REPLAY_OF, b"1@7"))
    assert put_back(LETTER, ["reply-to", "x"]) == ((REPLAY_OF, b"1@7"),)
