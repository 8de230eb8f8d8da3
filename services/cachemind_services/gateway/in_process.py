"""Calls a handler of ours as an HTTP server would, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from cachemind_services.gateway.http_io import (
    JSON,
    Header,
    Message,
    Receive,
    Scope,
    Send,
)

Handler = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(slots=True)
class Heard:
    """What a handler answered; `whole` once it has said that nothing follows."""

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    whole: bool = False


def post(path: str, headers: Sequence[Header]) -> Scope:
    """Return the scope of a POST of JSON to `path`."""
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [JSON, *headers],
    }


def get(path: str, query: str) -> Scope:
    """Return the scope of a GET of `path` with a query, which may be empty."""
    return {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [],
    }


async def heard(handler: Handler, scope: Scope, body: bytes) -> Heard:
    """Return what `handler` answers to a request whose caller waits for it."""
    answer, parts = Heard(), list[bytes]()
    request: list[Message] = [{"type": "http.request", "body": body}]

    async def receive() -> Message:
        if request:
            return request.pop()
        await asyncio.get_running_loop().create_future()  # it never hangs up
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = dict(message["headers"])
            return
        parts.append(message.get("body", b""))
        answer.whole = not message.get("more_body", False)

    await handler(scope, receive, send)
    answer.body = b"".join(parts)
    return answer
