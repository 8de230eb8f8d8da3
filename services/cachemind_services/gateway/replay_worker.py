"""The gateway of a replay: served on a socket, or asked once in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import uvloop

from cachemind.errors import StoreUnavailable
from cachemind_services.bootstrap.replaying import Replay, open_replay
from cachemind_services.gateway.app import Gateway
from cachemind_services.gateway.as_of import CHAT_PATH, AsOfGateway
from cachemind_services.gateway.http_io import Header, Message
from cachemind_services.gateway.worker import gateway_deps, serve_on
from cachemind_services.settings import Settings

READY_S: Final = 60.0
POLL_S: Final = 0.02
NUMBER: Final = 0
Answer = tuple[int, Mapping[str, str], bytes]


def serve(settings: Settings, replay: Replay, fd: int) -> int:
    """Serve hits as of then on the listening socket `fd` until SIGTERM."""

    async def run() -> int:
        return await serve_on(_gateway(settings, replay), [fd])

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def look_up(
    settings: Settings,
    replay: Replay,
    request: Mapping[str, object],
    headers: Mapping[str, str],
) -> Answer:
    """Return status, headers and body of what was answered to `request` then.

    `headers` are what its application sent beside it: a credential decides whose
    entries are found. The same code as a served request runs; only the sockets are
    missing. Raises: `StoreUnavailable` where the replay cannot be read.
    """
    body = json.dumps(request).encode()
    fields = [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in headers.items()
    ]
    return asyncio.run(_look_up(settings, replay, body, fields))


def _gateway(settings: Settings, replay: Replay) -> AsOfGateway:
    # With the keys of then, one that was revoked since would count.
    settings = replace(settings, auth=False)
    ports = open_replay(settings, replay)
    inner = Gateway(gateway_deps(settings, ports, NUMBER))
    return AsOfGateway(inner, replay.as_of.name)


async def _look_up(
    settings: Settings, replay: Replay, body: bytes, fields: Sequence[Header]
) -> Answer:
    gateway = _gateway(settings, replay)
    life = _Lifespan(gateway)
    await life.begin()
    try:
        deadline = asyncio.get_running_loop().time() + READY_S
        while (await _ask(gateway, "GET", "/readyz", b""))[0] != 200:
            if asyncio.get_running_loop().time() > deadline:
                raise StoreUnavailable(f"{replay.folder}: cannot be read")
            await asyncio.sleep(POLL_S)
        return await _ask(gateway, "POST", CHAT_PATH, body, fields)
    finally:
        await life.end()


async def _ask(
    gateway: AsOfGateway,
    method: str,
    path: str,
    body: bytes,
    fields: Sequence[Header] = (),
) -> Answer:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), *fields],
    }
    await gateway(scope, receive, send)
    return sent[0]["status"], _headers(sent[0]["headers"]), _body(sent[1:])


def _headers(pairs: Sequence[tuple[bytes, bytes]]) -> Mapping[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in pairs}


def _body(messages: Sequence[Message]) -> bytes:
    return b"".join(message.get("body", b"") for message in messages)


class _Lifespan:
    """The server's half of ASGI's lifespan protocol."""

    def __init__(self, gateway: AsOfGateway) -> None:
        self._gateway = gateway
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._from_app: asyncio.Queue[Message] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Start the application; return once it has."""
        self._task = asyncio.create_task(
            self._gateway({"type": "lifespan"}, self._to_app.get, self._from_app.put)
        )
        await self._tell("startup")

    async def end(self) -> None:
        """Stop the application; return once it has."""
        await self._tell("shutdown")
        if self._task is not None:
            await self._task

    async def _tell(self, word: str) -> None:
        await self._to_app.put({"type": f"lifespan.{word}"})
        await self._from_app.get()
