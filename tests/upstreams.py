"""An OpenAI-compatible model server whose behaviour a test writes as a script."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn

Scope = Any
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True)
class Received:
    """A request as the model server got it."""

    method: str
    target: str
    headers: list[tuple[bytes, bytes]]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed

    def header(self, name: str) -> str | None:
        found = [v for n, v in self.headers if n == name.encode()]
        return found[0].decode() if found else None


Behaviour = Callable[[Received, Send], Awaitable[None]]


def completion(request: dict[str, Any], text: str = "") -> dict[str, Any]:
    """Return the answer that this server gives: n choices, tools, logprobs, usage."""
    prompt = request["messages"][-1]["content"]
    said = text or f"The answer to {prompt!r} is long enough to be streamed in parts."
    choices = []
    for index in range(request.get("n") or 1):
        words = f"{said} ({index})" if index else said
        message: dict[str, Any] = {"role": "assistant", "content": words}
        finish = "stop"
        if request.get("tools"):
            call = {"name": "look_up", "arguments": json.dumps({"q": str(prompt)})}
            message["content"] = None
            message["tool_calls"] = [
                {"id": f"call_{index}_{k}", "type": "function", "function": call}
                for k in range(2)
            ]
            finish = "tool_calls"
        choice = {"index": index, "message": message, "finish_reason": finish}
        choice["logprobs"] = _logprobs(words) if request.get("logprobs") else None
        choices.append(choice)
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": request["model"],
        "system_fingerprint": "fp_scripted",
        "choices": choices,
        "usage": {"prompt_tokens": 7, "completion_tokens": 11, "total_tokens": 18},
    }


def _logprobs(words: str) -> dict[str, Any]:
    tokens = [word + " " for word in words.split(" ")]
    tokens[-1] = tokens[-1][:-1]
    entries = [
        {
            "token": token,
            "logprob": -0.01,
            "bytes": list(token.encode()),
            "top_logprobs": [{"token": token, "logprob": -0.01, "bytes": None}],
        }
        for token in tokens
    ]
    return {"content": entries, "refusal": None}


def chunks(answer: dict[str, Any], *, include_usage: bool) -> Iterator[dict[str, Any]]:
    """Yield an answer as a server would stream it; written apart from ours."""
    base = {k: answer[k] for k in ("id", "created", "model", "system_fingerprint")}
    base["object"] = "chat.completion.chunk"
    tail: dict[str, Any] = {"usage": None} if include_usage else {}

    def chunk(index: int, delta: dict[str, Any], **rest: Any) -> dict[str, Any]:
        part = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        return {**base, "choices": [{**part, **rest}], **tail}

    for choice in answer["choices"]:
        index, message = choice["index"], choice["message"]
        yield chunk(index, {"role": "assistant", "content": message["content"] and ""})
        if message["content"] and choice["logprobs"]:
            for entry in choice["logprobs"]["content"]:
                one = {"content": [entry], "refusal": None}
                yield chunk(index, {"content": entry["token"]}, logprobs=one)
        elif message["content"]:
            for word in message["content"].split(" "):
                first = word == message["content"].split(" ")[0]
                yield chunk(index, {"content": word if first else " " + word})
        for k, call in enumerate(message.get("tool_calls", [])):
            function = call["function"]
            head = {**call, "function": {"name": function["name"], "arguments": ""}}
            yield chunk(index, {"tool_calls": [{"index": k, **head}]})
            for start in range(0, len(function["arguments"]), 5):
                piece = {"arguments": function["arguments"][start : start + 5]}
                yield chunk(index, {"tool_calls": [{"index": k, "function": piece}]})
        yield chunk(index, {}, finish_reason=choice["finish_reason"])
    if include_usage:
        yield {**base, "choices": [], "usage": answer["usage"]}


def sse(answer: dict[str, Any], *, include_usage: bool) -> list[bytes]:
    """Return the frames of an answer, [DONE] last."""
    frames = chunks(answer, include_usage=include_usage)
    return [
        *(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in frames),
        b"data: [DONE]\n\n",
    ]


async def start(
    send: Send, status: int, kind: bytes, extra: list[tuple[bytes, bytes]] | None = None
) -> None:
    headers = [(b"content-type", kind), *(extra or [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def piece(send: Send, body: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def good(received: Received, send: Send) -> None:
    """Answer as asked, JSON or stream."""
    request = received.json
    answer = completion(request)
    if not request.get("stream"):
        await start(send, 200, b"application/json")
        await piece(send, json.dumps(answer, indent=1).encode(), more=False)
        return
    options = request.get("stream_options") or {}
    await start(send, 200, b"text/event-stream")
    for frame in sse(answer, include_usage=bool(options.get("include_usage"))):
        await piece(send, frame)
        await asyncio.sleep(0)
    await piece(send, b"", more=False)


def fails(status: int, body: bytes = b'{"error":{"message":"no"}}') -> Behaviour:
    """Return a behaviour that always answers with an error."""

    async def behave(_received: Received, send: Send) -> None:
        extra = [(b"x-request-id", b"req-1"), (b"retry-after", b"7")]
        await start(send, status, b"application/json", extra)
        await piece(send, body, more=False)

    return behave


def streams(frames: list[bytes], *, cut: bool = False) -> Behaviour:
    """Return a behaviour that streams exactly these bytes, and may then break off."""

    async def behave(_received: Received, send: Send) -> None:
        await start(send, 200, b"text/event-stream")
        for frame in frames:
            await piece(send, frame)
            await asyncio.sleep(0.001)
        if not cut:
            await piece(send, b"", more=False)

    return behave


def answers(body: bytes, kind: bytes = b"application/json") -> Behaviour:
    """Return a behaviour that answers 200 with exactly these bytes."""

    async def behave(_received: Received, send: Send) -> None:
        await start(send, 200, kind)
        await piece(send, body, more=False)

    return behave


class Gate:
    """Holds requests until a test opens it, from any thread."""

    def __init__(self, then: Behaviour = good) -> None:
        self._open = threading.Event()
        self._then = then
        self.arrived = threading.Semaphore(0)

    def open(self) -> None:
        self._open.set()

    async def __call__(self, received: Received, send: Send) -> None:
        self.arrived.release()
        while not self._open.is_set():
            await asyncio.sleep(0.002)
        await self._then(received, send)


@dataclass
class ScriptedUpstream:
    """The ASGI app. `behaviour` answers chat completions, `other` everything else."""

    behaviour: Behaviour = good
    other: Behaviour | None = None
    received: list[Received] = field(default_factory=list)
    hung_up: threading.Event = field(default_factory=threading.Event)

    @property
    def chats(self) -> list[Received]:
        return [r for r in self.received if r.target.startswith("/v1/chat/completions")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        received = await _receive(scope, receive)
        self.received.append(received)
        is_chat = received.method == "POST" and received in self.chats
        work = asyncio.ensure_future(
            (self.behaviour if is_chat else self.other or _echo)(received, send)
        )
        watch = asyncio.ensure_future(_disconnect(receive))
        await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            self.hung_up.set()
        watch.cancel()
        work.cancel()
        await asyncio.wait({work, watch})


async def _receive(scope: Scope, receive: Receive) -> Received:
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    target = scope["raw_path"].decode()
    if scope["query_string"]:
        target += "?" + scope["query_string"].decode()
    return Received(scope["method"], target, list(scope["headers"]), body)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _echo(received: Received, send: Send) -> None:
    await start(send, 200, b"application/octet-stream", [(b"x-echo", b"1")])
    await piece(send, received.target.encode() + b"\n" + received.body, more=False)


@contextmanager
def served(app: Any, *, lifespan: str = "off", drain_s: int = 3) -> Iterator[str]:
    """Serve an ASGI app from a thread; yield its base URL."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        lifespan="on" if lifespan == "on" else "off",
        loop="uvloop",
        http="httptools",
        ws="none",
        log_config=None,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=drain_s,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    wait_until(lambda: server.started or not thread.is_alive())
    assert server.started, "the server did not start"
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()
        assert not thread.is_alive(), "the server did not stop"


def wait_until(holds: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Return once `holds()` is true; fail when it stays false."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.002)


async def drained(stream: AsyncIterator[bytes]) -> bytes:
    """Return all bytes of a stream."""
    return b"".join([part async for part in stream])
