from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.sse import SseEvent, SseParser, data_frame, serialise


def parse(*chunks: bytes) -> list[SseEvent]:
    parser = SseParser()
    frames = [frame for chunk in chunks for frame in parser.feed(chunk)]
    return [frame.event for frame in frames if frame.event is not None]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        pytest.param(b"data: a\n\n", [SseEvent("a")], id="lf"),
        pytest.param(b"data: a\r\n\r\n", [SseEvent("a")], id="crlf"),
        pytest.param(b"data: a\r\r", [SseEvent("a")], id="cr"),
        pytest.param(
            b"data: a\r\n\rdata: b\n\n", [SseEvent("a"), SseEvent("b")], id="mixed"
        ),
        pytest.param(b"data:a\n\n", [SseEvent("a")], id="no-space"),
        pytest.param(b"data:  a\n\n", [SseEvent(" a")], id="only-one-space-goes"),
        pytest.param(b"data: a\ndata: b\n\n", [SseEvent("a\nb")], id="two-lines"),
        pytest.param(b"data\ndata\n\n", [SseEvent("\n")], id="two-empty-lines"),
        pytest.param(b"data\n\n", [SseEvent("")], id="one-empty-line"),
        pytest.param(b": ping\n\n", [], id="comment"),
        pytest.param(b": ping\ndata: a\n\n", [SseEvent("a")], id="comment-inside"),
        pytest.param(b"\xef\xbb\xbfdata: a\n\n", [SseEvent("a")], id="bom"),
        pytest.param(
            b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n",
            [SseEvent("b")],
            id="only-one-bom-goes",
        ),
        pytest.param(b"event: x\ndata: a\n\n", [SseEvent("a", "x")], id="named"),
        pytest.param(b"event: x\n\ndata: a\n\n", [SseEvent("a")], id="name-is-reset"),
        pytest.param(
            b"id: 7\ndata: a\n\ndata: b\n\n",
            [SseEvent("a", last_id="7"), SseEvent("b", last_id="7")],
            id="id-stays",
        ),
        pytest.param(b"id: 7\0\ndata: a\n\n", [SseEvent("a")], id="nul-in-id"),
        pytest.param(b"Data: a\n\n", [], id="names-are-case-sensitive"),
        pytest.param(b"retry: 5\nfoo: 1\ndata: a\n\n", [SseEvent("a")], id="unknown"),
        pytest.param(b"data: \xff\n\n", [SseEvent("\ufffd")], id="invalid-utf-8"),
        pytest.param(b"data: a\n", [], id="cut-before-the-blank-line"),
        pytest.param(b"", [], id="empty"),
        pytest.param(
            "data: a\u2028b\x0bc\n\n".encode(),
            [SseEvent("a\u2028b\x0bc")],
            id="other-line-separators-are-text",
        ),
    ],
)
def test_a_stream_parses_as_the_standard_says(
    stream: bytes, expected: list[SseEvent]
) -> None:
    assert parse(stream) == expected
    assert parse(*(bytes([byte]) for byte in stream)) == expected


pieces = st.lists(
    st.sampled_from(
        [
            b"\r",
            b"\n",
            b"data",
            b":",
            b" ",
            b"id: 1",
            b"event: e",
            b"x",
            b"\xef\xbb\xbf",
        ]
    ),
    max_size=30,
).map(b"".join)


@given(stream=pieces, cuts=st.sets(st.integers(0, 90)))
def test_chunk_ends_change_nothing_and_no_byte_is_lost(
    stream: bytes, cuts: set[int]
) -> None:
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    chunks = [stream[a:b] for a, b in itertools.pairwise(edges)]
    parser = SseParser()
    frames = [frame for chunk in chunks for frame in parser.feed(chunk)]
    events = [frame.event for frame in frames if frame.event is not None]
    assert b"".join(frame.raw for frame in frames) + parser.rest() == stream
    assert events == parse(stream)


@given(
    data=st.text().filter(lambda text: "\r" not in text),
    name=st.sampled_from(["message", "error", "é"]),
)
def test_a_serialised_event_parses_to_itself(data: str, name: str) -> None:
    event = SseEvent(data, name)
    assert parse(serialise(event)) == [event]


def test_a_frame_ends_as_soon_as_its_blank_line_does() -> None:
    parser = SseParser()
    assert [frame.raw for frame in parser.feed(b"data: a\r\n\r")] == [b"data: a\r\n\r"]
    assert [frame.raw for frame in parser.feed(b"\ndata: b\n\n")] == [b"\ndata: b\n\n"]


def test_an_event_name_with_a_line_end_is_refused() -> None:
    with pytest.raises(ValueError, match="one line"):
        serialise(SseEvent("a", "x\ndata: forged"))


def test_a_data_frame_parses_to_its_data() -> None:
    assert parse(data_frame(b'{"a":1}')) == [SseEvent('{"a":1}')]
