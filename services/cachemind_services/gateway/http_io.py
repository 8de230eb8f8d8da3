"""The HTTP of a gateway: ASGI messages in and out, errors in OpenAI's form."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import orjson

from cachemind.errors import InvalidRequest

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Header = tuple[bytes, bytes]

JSON: Final[Header] = (b"content-type", b"application/json")
TOO_LARGE: Final = 413
LINGER_S: Final = 2.0
LINGER_BYTES: Final = 64 * 2**20


class ClientGone(Exception):
    """The client closed its connection; there is nobody to answer."""


async def read_body(receive: Receive, limit: int) -> bytes:
    """Return the whole body.

    Raises: `InvalidRequest` with 413 past `limit` bytes; `ClientGone`.
    """
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body"):
        if len(body) > limit:
            raise _too_large(limit)
        return body
    parts, size = [body], len(body)
    while True:
        if message["type"] == "http.disconnect":
            raise ClientGone
        if size > limit:
            raise _too_large(limit)
        if not message.get("more_body"):
            return b"".join(parts)
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])


def _too_large(limit: int) -> InvalidRequest:
    return InvalidRequest("body", f"is larger than {limit} bytes", status=TOO_LARGE)


async def disconnected(receive: Receive) -> None:
    """Return when the client closes its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_whole(
    send: Send, status: int, headers: list[Header], body: bytes
) -> None:
    """Send an answer with its length."""
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_json(
    send: Send, status: int, value: object, headers: tuple[Header, ...] = ()
) -> None:
    """Send `value` as JSON."""
    await send_whole(send, status, [JSON, *headers], orjson.dumps(value))


async def send_error(
    send: Send,
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    headers: tuple[Header, ...] = (),
) -> None:
    """Send an error as OpenAI's API would, so that its clients understand it."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    error = {"message": message, "type": kind, "param": param, "code": code}
    await send_json(send, status, {"error": error}, headers)


async def send_invalid(
    send: Send, error: InvalidRequest, receive: Receive | None = None
) -> None:
    """Send a 4xx that names the field; of a body too large, read what still comes.

    A connection closed over unread bytes is reset, and many clients then lose the
    answer that says why.
    """
    if error.status != TOO_LARGE:
        await send_error(send, error.status, str(error), param=error.field)
        return
    close = ((b"connection", b"close"),)

    async def send_and_linger(message: Message) -> None:
        if message["type"] == "http.response.body" and receive is not None:
            await send({**message, "more_body": True})
            await _discard(receive)
            message = {"type": "http.response.body", "body": b""}
        await send(message)

    await send_error(
        send_and_linger, error.status, str(error), param=error.field, headers=close
    )


async def _discard(receive: Receive) -> None:
    """Read the rest of a body for at most `LINGER_S` seconds and `LINGER_BYTES`."""
    left = LINGER_BYTES
    try:
        async with asyncio.timeout(LINGER_S):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if not message.get("more_body"):
                    return
    except TimeoutError:
        return


def target_of(scope: Scope) -> str:
    """Return path and query exactly as the client sent them.

    Raises: `InvalidRequest` where the target is not a path: appended to upstream's
    address, `*@elsewhere/` would name another server.
    """
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    if not raw.startswith(b"/"):
        raise InvalidRequest("request target", "must begin with /")
    query: bytes = scope.get("query_string", b"")
    return (raw + b"?" + query if query else raw).decode("latin-1")
