"""The demo upstream: a minimal OpenAI-compatible server of one small real model.

Plain ASGI. One generation at a time; requests queue in order of arrival, and one
whose client has gone is dropped, also in the middle of its answer.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    MutableMapping,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, Protocol

import orjson

from cachemind.errors import CacheError
from cachemind_services.demo.chat_answers import Answer, Body, Choice
from cachemind_services.demo.chat_request import ChatCall, RequestProblem, parse_call
from cachemind_services.demo.chat_sampling import SERVED_TOKENS, Delta, Sampling, Token
from cachemind_services.demo.chat_text import deltas

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MOST_BODY_BYTES: Final = 2**20
MOST_WAITING: Final = 64
_JSON: Final = [(b"content-type", b"application/json")]
_SSE: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
]

logger = logging.getLogger(__name__)


class Model(Protocol):
    """What the server needs of a chat model."""

    def prompt(self, messages: tuple[dict[str, str], ...]) -> list[int]:
        """Return a conversation's tokens."""
        ...

    def generate(self, prompt: list[int], sampling: Sampling) -> Iterator[Token]:
        """Yield tokens until the model ends its turn."""
        ...


class ClientGone(CacheError):
    """The client closed the connection; nobody waits for the answer."""


class DemoUpstream:
    """The ASGI application. `now_s` is wall time in Unix seconds."""

    def __init__(self, model: Model, name: str, now_s: Callable[[], float]) -> None:
        self._model = model
        self._name = name
        self._now_s = now_s
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="generate")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event of uvicorn."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        try:
            await self._route(scope, receive, send)
        except RequestProblem as problem:
            await _send_json(send, problem.status, problem.body)
        except ClientGone:
            logger.info("client left before its answer was complete")

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                self._thread.shutdown(cancel_futures=True)
                return

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        where = (scope["method"], scope["path"].rstrip("/"))
        if where == ("POST", "/v1/chat/completions"):
            call = parse_call(await _body(receive), self._name)
            await self._complete(call, receive, send)
        elif where == ("GET", "/v1/models"):
            await _send_json(send, 200, {"object": "list", "data": [self._card()]})
        elif where == ("GET", f"/v1/models/{self._name}"):
            await _send_json(send, 200, self._card())
        else:
            raise RequestProblem(
                "the demo upstream has no such resource", None, status=404
            )

    def _card(self) -> Body:
        return {
            "id": self._name,
            "object": "model",
            "created": 0,
            "owned_by": "cachemind-demo-upstream",
        }

    async def _complete(self, call: ChatCall, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            async with self._my_turn(gone):
                prompt = await self._in_thread(self._model.prompt, call.messages)
                self._check_length(call, prompt)
                answer = Answer(
                    ident=f"chatcmpl-{secrets.token_hex(16)}",
                    created_s=int(self._now_s()),
                    model=self._name,
                    logprobs=call.logprobs,
                )
                respond = self._stream if call.stream else self._whole
                await respond(call, prompt, answer, gone, send)
        finally:
            gone.cancel()

    @asynccontextmanager
    async def _my_turn(self, gone: asyncio.Future[None]) -> AsyncIterator[None]:
        if self._waiting >= MOST_WAITING:
            raise RequestProblem(
                "the demo upstream has too many requests waiting",
                None,
                status=429,
                kind="rate_limit_error",
                code="rate_limit_exceeded",
            )
        self._waiting += 1
        turn = asyncio.ensure_future(self._turn.acquire())
        try:
            either: set[asyncio.Future[Any]] = {turn, gone}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise ClientGone
            yield
        finally:
            self._waiting -= 1
            if not turn.done():
                turn.cancel()
            elif not turn.cancelled():
                self._turn.release()

    def _check_length(self, call: ChatCall, prompt: list[int]) -> None:
        if len(prompt) + call.sampling.max_tokens > SERVED_TOKENS:
            raise RequestProblem(
                f"prompt ({len(prompt)} tokens) and max_tokens exceed "
                f"the {SERVED_TOKENS} tokens served",
                "messages",
                code="context_length_exceeded",
            )

    async def _whole(
        self,
        call: ChatCall,
        prompt: list[int],
        answer: Answer,
        gone: asyncio.Future[None],
        send: Send,
    ) -> None:
        choices = [Choice() for _ in range(call.choices)]
        for index, choice in enumerate(choices):
            async with aclosing(self._deltas(call, prompt, index, gone)) as pieces:
                async for delta in pieces:
                    choice.add(delta)
        await _send_json(send, 200, answer.whole(choices, len(prompt)))

    async def _stream(
        self,
        call: ChatCall,
        prompt: list[int],
        answer: Answer,
        gone: asyncio.Future[None],
        send: Send,
    ) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _SSE})
        choices = [Choice() for _ in range(call.choices)]
        for index, choice in enumerate(choices):
            await _send_event(send, answer.opening(index))
            async with aclosing(self._deltas(call, prompt, index, gone)) as pieces:
                async for delta in pieces:
                    choice.add(delta)
                    if delta.text or delta.tokens:
                        await _send_event(send, answer.piece(index, delta))
            await _send_event(send, answer.closing(index, choice.finish or "stop"))
        if call.include_usage:
            await _send_event(send, answer.final_usage(choices, len(prompt)))
        await _send_body(send, b"data: [DONE]\n\n", more=False)

    async def _deltas(
        self,
        call: ChatCall,
        prompt: list[int],
        index: int,
        gone: asyncio.Future[None],
    ) -> AsyncGenerator[Delta, None]:
        sampling = call.sampling.of_choice(index)
        tokens = self._model.generate(prompt, sampling)
        pieces = deltas(tokens, sampling.stop, sampling.max_tokens)
        while (delta := await self._in_thread(next, pieces, None)) is not None:
            if gone.done():
                raise ClientGone
            yield delta

    async def _in_thread(self, call: Callable[..., Any], *arguments: object) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, call, *arguments)


async def _body(receive: Receive) -> bytes:
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MOST_BODY_BYTES:
            raise RequestProblem(
                f"body is longer than {MOST_BODY_BYTES} bytes", None, status=413
            )
        more = message.get("more_body", False)
    return b"".join(parts)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_json(send: Send, status: int, body: Body) -> None:
    await send({"type": "http.response.start", "status": status, "headers": _JSON})
    await _send_body(send, orjson.dumps(body), more=False)


async def _send_event(send: Send, body: Body) -> None:
    await _send_body(send, b"data: " + orjson.dumps(body) + b"\n\n", more=True)


async def _send_body(send: Send, body: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})
