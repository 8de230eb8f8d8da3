"""The demo upstream's HTTP side, over a model that says what it is told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from cachemind_services.demo.chat_sampling import Sampling, Scored, Token
from cachemind_services.demo.upstream import MOST_BODY_BYTES, MOST_WAITING, DemoUpstream

NAME = "small"
CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {"model": NAME, "messages": [{"role": "user", "content": "hi"}]}


@dataclass
class SayingModel:
    """Says its words, one a token; remembers what it was asked and how far it got."""

    words: tuple[str, ...] = ("One ", "two ", "three.")
    running: int = 0
    most_running: int = 0
    given: int = 0
    order: list[str] = field(default_factory=list)

    def prompt(self, messages: tuple[dict[str, str], ...]) -> list[int]:
        self.order.append(messages[-1]["content"])
        return list(range(len(messages[-1]["content"])))

    def generate(self, prompt: list[int], sampling: Sampling) -> Iterator[Token]:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            for word in self.words:
                self.given += 1
                alternatives = (Scored(word.encode(), -0.25),) * sampling.top_logprobs
                yield Token(Scored(word.encode(), -0.25), alternatives)
        finally:
            self.running -= 1


class Client:
    """One request to an ASGI application, with a client that may leave."""

    def __init__(self, app: DemoUpstream, path: str, body: bytes, method: str) -> None:
        self.status = 0
        self.body = b""
        self.pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self._inbox: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
        self._inbox.put_nowait({"type": "http.request", "body": body})
        scope = {"type": "http", "method": method, "path": path}
        self.task = asyncio.ensure_future(app(scope, self._inbox.get, self._send))

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        self.body += message["body"]
        self.pieces.put_nowait(message["body"])

    def leave(self) -> None:
        self._inbox.put_nowait({"type": "http.disconnect"})

    async def answer(self) -> Any:
        await asyncio.wait_for(self.task, 10)
        return json.loads(self.body)

    async def events(self) -> list[Any]:
        await asyncio.wait_for(self.task, 10)
        *frames, done, rest = self.body.split(b"\n\n")
        assert (done, rest) == (b"data: [DONE]", b"")
        return [json.loads(frame.removeprefix(b"data: ")) for frame in frames]


@pytest.fixture
def model() -> SayingModel:
    return SayingModel()


@pytest.fixture
def app(model: SayingModel) -> DemoUpstream:
    return DemoUpstream(model, NAME, lambda: 1_700_000_000.5)


def post(app: DemoUpstream, **fields: object) -> Client:
    return Client(app, CHAT, json.dumps({**ASK, **fields}).encode(), "POST")


async def test_a_whole_answer_has_message_usage_and_finish_reason(
    app: DemoUpstream,
) -> None:
    client = post(app)
    answer = await client.answer()
    assert client.status == 200
    assert answer["object"] == "chat.completion"
    assert answer["created"] == 1_700_000_000
    (choice,) = answer["choices"]
    assert choice["message"]["content"] == "One two three."
    assert (choice["finish_reason"], choice["logprobs"]) == ("stop", None)
    assert answer["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 3,
        "total_tokens": 5,
    }


async def test_a_stream_says_what_the_whole_answer_says(app: DemoUpstream) -> None:
    whole = await post(app, n=2, logprobs=True, top_logprobs=1).answer()
    client = post(
        app,
        n=2,
        logprobs=True,
        top_logprobs=1,
        stream=True,
        stream_options={"include_usage": True},
    )
    *chunks, usage = await client.events()
    assert usage["usage"] == whole["usage"]
    assert usage["choices"] == []
    for index, choice in enumerate(whole["choices"]):
        mine = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        assert mine[0]["delta"] == {"role": "assistant", "content": ""}
        said = "".join(c["delta"].get("content", "") for c in mine)
        assert said == choice["message"]["content"]
        scored = [x for c in mine if c["logprobs"] for x in c["logprobs"]["content"]]
        assert scored == choice["logprobs"]["content"]
        finishes = [c["finish_reason"] for c in mine]
        assert finishes == [None] * (len(mine) - 1) + [choice["finish_reason"]]


async def test_without_the_option_a_stream_has_no_usage(app: DemoUpstream) -> None:
    assert all(chunk["choices"] for chunk in await post(app, stream=True).events())


async def test_requests_take_turns_in_order_of_arrival(
    app: DemoUpstream, model: SayingModel
) -> None:
    names = [f"question {number}" for number in range(5)]
    clients = [post(app, messages=[{"role": "user", "content": n}]) for n in names]
    await asyncio.gather(*(client.answer() for client in clients))
    assert model.order == names
    assert model.most_running == 1


async def test_a_client_that_leaves_stops_its_generation(
    model: SayingModel, app: DemoUpstream
) -> None:
    model.words = ("word ",) * 1_000
    client = post(app, stream=True, max_tokens=1_000)
    await client.pieces.get()
    client.leave()
    await asyncio.wait_for(client.task, 10)
    assert model.given < 1_000
    assert b"[DONE]" not in client.body
    model.words = ("Still here.",)
    assert (await post(app).answer())["choices"][0]["finish_reason"] == "stop"


async def test_a_client_that_leaves_the_queue_is_never_generated_for(
    model: SayingModel, app: DemoUpstream
) -> None:
    model.words = ("word ",) * 200
    first = post(app, stream=True, max_tokens=200)
    await first.pieces.get()
    second = post(app, messages=[{"role": "user", "content": "left"}])
    second.leave()
    await asyncio.wait_for(second.task, 10)
    await first.events()
    assert "left" not in model.order
    assert second.status == 0


async def test_a_full_queue_is_said(model: SayingModel, app: DemoUpstream) -> None:
    clients = [post(app) for _ in range(MOST_WAITING + 1)]
    await asyncio.gather(*(client.task for client in clients))
    assert sorted(client.status for client in clients) == [200] * MOST_WAITING + [429]


@pytest.mark.parametrize(
    ("path", "method", "body", "status"),
    [
        ("/v1/models/other", "GET", b"", 404),
        ("/v1/embeddings", "POST", b"{}", 404),
        (CHAT, "GET", b"", 404),
        (CHAT, "POST", b"{", 400),
        (CHAT, "POST", b" " * (MOST_BODY_BYTES + 1), 413),
        (CHAT, "POST", json.dumps({**ASK, "max_tokens": 0}).encode(), 400),
    ],
)
async def test_errors_have_the_protocols_form(
    app: DemoUpstream, path: str, method: str, body: bytes, status: int
) -> None:
    client = Client(app, path, body, method)
    answer = await client.answer()
    assert client.status == status
    assert set(answer) == {"error"}
    assert set(answer["error"]) == {"message", "type", "param", "code"}


async def test_a_prompt_past_what_is_served_is_refused(app: DemoUpstream) -> None:
    client = post(app, messages=[{"role": "user", "content": "x" * 3_000}])
    answer = await client.answer()
    assert client.status == 400
    assert answer["error"]["code"] == "context_length_exceeded"


async def test_models_are_listed(app: DemoUpstream) -> None:
    listed = await Client(app, "/v1/models", b"", "GET").answer()
    one = await Client(app, f"/v1/models/{NAME}", b"", "GET").answer()
    assert listed == {"object": "list", "data": [one]}
    assert one["id"] == NAME
