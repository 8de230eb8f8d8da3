"""Fixed-answer OpenAI-compatible upstream, raw ASGI: what the gateway is held against.

`STUB_MS` delays each answer by that many milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

DELAY_S = float(os.environ.get("STUB_MS", "0")) / 1e3

Message = MutableMapping[str, Any]


async def app(
    scope: Message,
    receive: Callable[[], Awaitable[Message]],
    send: Callable[[Message], Awaitable[None]],
) -> None:
    """Answer every POST with the question and 400 characters."""
    if scope["type"] != "http":
        return
    body = await _body(receive)
    if DELAY_S:
        await asyncio.sleep(DELAY_S)
    question = json.loads(body or b"{}").get("messages", [{}])[-1].get("content", "")
    answer = _completion(f"answer to: {question} " + "x" * 400)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(answer)).encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


async def _body(receive: Callable[[], Awaitable[Message]]) -> bytes:
    body: bytes = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


def _completion(text: str) -> bytes:
    message = {"role": "assistant", "content": text}
    answer: str = json.dumps(
        {
            "id": "chatcmpl-stub",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": "stub",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {
                "prompt_tokens": 10,
                "completion_tokens": 100,
                "total_tokens": 110,
            },
        }
    )
    return answer.encode()
