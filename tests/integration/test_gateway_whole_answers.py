"""A hit written in one piece is, byte for byte, what uvicorn would have sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn

from cachemind_services.gateway.bounded_http import BoundedHttp
from cachemind_services.gateway.http_io import (
    Header,
    Message,
    Receive,
    Scope,
    Send,
    read_body,
    send_whole,
)
from cachemind_services.gateway.whole_answers import send_hit

BODY = b'{"choices": []}'
FIELDS: list[Header] = [
    (b"content-type", b"application/json"),
    (b"x-cachemind-outcome", b"hit_exact"),
    (b"age", b"3"),
]


class _Application:
    """Answers in one piece, or through a `send` that hides uvicorn's own."""

    def __init__(self) -> None:
        self.failures: list[type[BaseException]] = []
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.bodies.append(await read_body(receive, 1000))
        fields = list(FIELDS)
        if scope["path"] == "/broken":
            fields.append((b"x-broken", b"a\r\nset-cookie: b"))
        if scope["path"] == "/usual":
            await send_whole(send, 200, fields, BODY)
        elif scope["path"] == "/wrapped":

            async def wrapped(message: Message) -> None:
                if message["type"] == "http.response.start":
                    message["headers"] = [*message["headers"], (b"x-seen", b"1")]
                await send(message)

            await send_hit(wrapped, fields, BODY)
        else:
            try:
                await send_hit(send, fields, BODY)
            except ValueError as error:
                self.failures.append(type(error))
                raise


@asynccontextmanager
async def served(
    application: _Application,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    config = uvicorn.Config(
        application,
        "127.0.0.1",
        0,
        http=BoundedHttp,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
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


def request(path: str, method: str = "POST", more: str = "") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n{more}\r\n"
    return head.encode() + b"{}"


async def answer(reader: asyncio.StreamReader, length: int = len(BODY)) -> bytes:
    async with asyncio.timeout(3):
        head = await reader.readuntil(b"\r\n\r\n")
        return head + await reader.readexactly(length)


async def test_the_bytes_are_uvicorns_own() -> None:
    async with served(_Application()) as (reader, writer):
        writer.write(request("/usual"))
        usual = await answer(reader)
        for _ in range(3):  # on one connection
            writer.write(request("/hit"))
            assert await answer(reader) == usual


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    application = _Application()
    async with served(application) as (reader, writer):
        writer.write(request("/hit") + request("/usual") + request("/hit"))
        answers = [await answer(reader) for _ in range(3)]
        assert len(set(answers)) == 1
    assert application.bodies == [b"{}"] * 3


async def test_a_wrapped_send_sees_the_messages() -> None:
    async with served(_Application()) as (reader, writer):
        writer.write(request("/wrapped"))
        assert b"x-seen: 1\r\n" in await answer(reader)


async def test_a_connection_that_is_to_close_is_closed() -> None:
    async with served(_Application()) as (reader, writer):
        writer.write(request("/hit", more="Connection: close\r\n"))
        assert b"connection: close\r\n" in await answer(reader)
        async with asyncio.timeout(3):
            assert await reader.read() == b""


async def test_a_head_alone_is_answered_without_a_body() -> None:
    async with served(_Application()) as (reader, writer):
        writer.write(request("/hit", method="HEAD"))
        assert (await answer(reader, 0)).endswith(b"\r\n\r\n")
        writer.write(request("/hit"))
        assert (await answer(reader)).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_a_field_cannot_end_its_line() -> None:
    application = _Application()
    async with served(application) as (reader, writer):
        writer.write(request("/broken"))
        async with asyncio.timeout(3):
            head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 500 ")
        assert b"set-cookie" not in head
    assert application.failures == [ValueError]
