"""Bounds on a request's head, over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn

from cachemind_services.gateway.bounded_http import HEAD_BYTES, BoundedHttp
from cachemind_services.gateway.http_io import Receive, Scope, Send, send_json

LINE = b"GET / HTTP/1.1\r\nHost: x\r\n"


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    await send_json(send, 200, len(scope["headers"]))


@asynccontextmanager
async def connection(
    protocol: type[BoundedHttp] = BoundedHttp,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yield a connection to a server that speaks `protocol`."""
    config = uvicorn.Config(
        _app, "127.0.0.1", 0, http=protocol, lifespan="off", log_config=None
    )
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    port = server.servers[0].sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        await server.shutdown()


async def test_an_endless_head_is_a_431() -> None:
    async with connection() as (reader, writer):
        writer.write(LINE + b"X-A: " + b"a" * HEAD_BYTES)
        async with asyncio.timeout(3):
            assert await reader.readexactly(13) == b"HTTP/1.1 431 "


async def test_a_head_that_does_not_end_is_closed() -> None:
    class Hasty(BoundedHttp):
        head_s = 0.2

    async with connection(Hasty) as (reader, writer):
        writer.write(LINE + b"\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        await reader.readexactly(1)
        writer.write(LINE)
        async with asyncio.timeout(3):
            assert await reader.read() == b""


async def test_a_connection_without_a_request_is_closed() -> None:
    class Hasty(BoundedHttp):
        head_s = 0.2

    async with connection(Hasty) as (reader, _):
        async with asyncio.timeout(3):
            assert await reader.read() == b""


@pytest.mark.parametrize("pieces", [1, 7])
async def test_a_long_head_within_the_bound_and_the_next_one_pass(pieces: int) -> None:
    head = LINE + b"".join(b"X-%d: %s\r\n" % (i, b"a" * 50) for i in range(900))
    head += b"\r\n"
    size = len(head) // pieces + 1
    async with connection() as (reader, writer):
        for _ in range(3):
            for start in range(0, len(head), size):
                writer.write(head[start : start + size])
                await writer.drain()
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200")
            assert await reader.readexactly(3) == b"901"
