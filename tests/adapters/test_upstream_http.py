from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator

import pytest

from cachemind.adapters.upstream_http import HttpUpstream, UpstreamTimeouts
from cachemind.core.http_fields import end_to_end
from cachemind.errors import InvalidRequest, UpstreamUnavailable
from cachemind.ports import Upstream, UpstreamRequest
from tests.raw_server import raw_server

TIMEOUTS = UpstreamTimeouts(connect_s=1, first_byte_s=0.3, idle_s=0.3, total_s=0.8)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def request(
    target: str = "/v1/x",
    body: bytes | AsyncIterator[bytes] = b"{}",
    headers: tuple[tuple[bytes, bytes], ...] = (),
    method: str = "POST",
) -> UpstreamRequest:
    return UpstreamRequest(method=method, target=target, headers=headers, body=body)


class Recorder:
    """Answers every request with the same bytes and keeps what came."""

    def __init__(self, *pieces: bytes, close: bool = False, pause_s: float = 0) -> None:
        self.requests: list[bytes] = []
        self.connections: set[int] = set()
        self._pieces = pieces
        self._close = close
        self._pause_s = pause_s

    async def __call__(self, raw: bytes, writer: asyncio.StreamWriter) -> None:
        self.requests.append(raw)
        self.connections.add(id(writer.transport))
        for piece in self._pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(self._pause_s)
        if self._close:
            writer.close()


async def call(
    recorder: Recorder, sent: UpstreamRequest
) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    async with raw_server(recorder) as url:
        upstream = HttpUpstream(url, TIMEOUTS)
        try:
            async with upstream.send(sent) as response:
                body = b"".join([chunk async for chunk in response.chunks()])
                return response.status, list(response.headers), body
        finally:
            await upstream.close()


async def test_the_http_upstream_is_an_upstream() -> None:
    upstream: Upstream = HttpUpstream("http://127.0.0.1:1", TIMEOUTS)
    await upstream.close()


async def test_target_body_and_headers_reach_the_server_as_they_are() -> None:
    recorder = Recorder(OK)
    sent = request(
        "/v1/x%2Fy?a=%20b&c=+",
        b'{ "odd" :  1 }',
        (
            (b"host", b"gateway"),
            (b"authorization", b"Bearer k"),
            (b"x-two", b"1"),
            (b"x-two", b"2"),
            (b"x-name", "é".encode()),
            (b"content-length", b"999"),
            (b"connection", b"keep-alive, X-Private"),
            (b"x-private", b"1"),
            (b"te", b"trailers"),
        ),
    )
    await call(recorder, sent)
    head, _, body = recorder.requests[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /v1/x%2Fy?a=%20b&c=+ HTTP/1.1"
    assert body == b'{ "odd" :  1 }'
    names = sorted(line.split(b":")[0].lower() for line in lines[1:])
    assert names == sorted(
        [b"host", b"authorization", b"x-two", b"x-two", b"x-name", b"content-length"]
    )
    assert b"x-two: 1" in lines
    assert b"x-two: 2" in lines
    assert b"x-name: " + "é".encode() in lines
    assert b"gateway" not in head


async def test_a_compressed_answer_is_passed_on_compressed() -> None:
    packed = gzip.compress(b"hello")
    head = f"Content-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n".encode()
    status, headers, body = await call(
        Recorder(b"HTTP/1.1 429 Slow\r\nX-Rate: 1\r\nX-Rate: 2\r\n" + head + packed),
        request(),
    )
    assert (status, body) == (429, packed)
    assert headers[:3] == [
        (b"x-rate", b"1"),
        (b"x-rate", b"2"),
        (b"content-encoding", b"gzip"),
    ]


async def test_a_chunked_answer_loses_its_framing_only() -> None:
    _, headers, body = await call(
        Recorder(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nKeep-Alive: 5\r\n\r\n",
            b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
        ),
        request(),
    )
    assert (headers, body) == ([], b"abc")


async def test_a_redirect_is_passed_on() -> None:
    head = b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"
    status, headers, _ = await call(Recorder(head), request(method="GET", body=b""))
    assert status == 302
    assert (b"location", b"/elsewhere") in headers


async def test_a_streamed_body_is_sent_as_it_comes() -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"a" * 10
        yield b"b" * 5

    recorder = Recorder(OK)
    await call(recorder, request(body=body()))
    assert recorder.requests[0].endswith(b"5\r\nbbbbb\r\n0\r\n\r\n")


async def test_a_long_body_arrives_whole() -> None:
    recorder = Recorder(OK)
    await call(recorder, request(body=bytes(3_000_000)))
    head, _, body = recorder.requests[0].partition(b"\r\n\r\n")
    assert b"content-length: 3000000" in head.lower()
    assert body == bytes(3_000_000)


async def test_connections_are_reused() -> None:
    recorder = Recorder(OK)
    async with raw_server(recorder) as url:
        upstream = HttpUpstream(url, TIMEOUTS)
        for _ in range(3):
            async with upstream.send(request()) as response:
                assert [chunk async for chunk in response.chunks()] == [b"ok"]
        await upstream.close()
    assert len(recorder.connections) == 1


@pytest.mark.parametrize(
    ("recorder", "status"),
    [
        pytest.param(
            Recorder(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab", close=True),
            502,
            id="cut-by-length",
        ),
        pytest.param(
            Recorder(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
                close=True,
            ),
            502,
            id="cut-chunked",
        ),
        pytest.param(Recorder(close=True), 502, id="closed-without-an-answer"),
        pytest.param(Recorder(b"hello\r\n\r\n", close=True), 502, id="not-http"),
        pytest.param(
            Recorder(b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n"),
            502,
            id="unknown-status",
        ),
        pytest.param(
            Recorder(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"),
            502,
            id="an-upgrade",
        ),
        pytest.param(
            Recorder(b"HTTP/1.1 200 OK\r\nX-A: a\x0bb\r\nContent-Length: 0\r\n\r\n"),
            502,
            id="control-characters",
        ),
        pytest.param(Recorder(), 504, id="silent"),
        pytest.param(
            Recorder(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"),
            504,
            id="stalled",
        ),
        pytest.param(
            Recorder(
                b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
                *[b"a"] * 8,
                pause_s=0.2,
            ),
            504,
            id="slower-than-the-total",
        ),
    ],
)
async def test_a_broken_answer_is_an_error_with_a_status(
    recorder: Recorder, status: int
) -> None:
    with pytest.raises(UpstreamUnavailable) as caught:
        await call(recorder, request())
    assert caught.value.status == status


async def test_a_server_that_is_not_there_is_a_502() -> None:
    upstream = HttpUpstream("http://127.0.0.1:1", TIMEOUTS)
    with pytest.raises(UpstreamUnavailable, match="cannot be reached") as caught:
        async with upstream.send(request()):
            pass
    await upstream.close()
    assert caught.value.status == 502


async def test_a_header_that_is_not_text_names_itself() -> None:
    upstream = HttpUpstream("http://127.0.0.1:1", TIMEOUTS)
    with pytest.raises(InvalidRequest) as caught:
        async with upstream.send(request(headers=((b"x-a", b"\xff"),))):
            pass
    await upstream.close()
    assert caught.value.field == "header x-a"


async def test_leaving_early_closes_the_connection() -> None:
    gone = asyncio.Event()

    async def answer(_raw: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                writer.write(b"2\r\nab\r\n")
                await writer.drain()
                await asyncio.sleep(0.01)
        except ConnectionError:
            gone.set()
            raise

    async with raw_server(answer) as url:
        upstream = HttpUpstream(url, UpstreamTimeouts())
        async with upstream.send(request()) as response:
            assert (await anext(response.chunks())).startswith(b"ab")
        async with asyncio.timeout(2):
            await gone.wait()
        await upstream.close()


def test_only_end_to_end_fields_pass() -> None:
    found = end_to_end(
        [
            (b"Connection", b"close, X-One , x-two"),
            (b"X-One", b"1"),
            (b"x-two", b"2"),
            (b"Upgrade", b"h2c"),
            (b"Transfer-Encoding", b"chunked"),
            (b"Via", b"1.1 other"),
            (b"X-Three", b"3"),
        ]
    )
    assert found == [(b"via", b"1.1 other"), (b"x-three", b"3")]
