"""What the client library makes of a gateway, or of another server, that fails."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cachemind.adapters.upstream_http import HttpUpstream, UpstreamTimeouts
from cachemind.client import (
    AsyncCacheMind,
    CacheMind,
    CallFailed,
    NoCache,
    NotFound,
    NotValid,
    Patience,
    RollbackGoal,
    Selector,
    StreamCut,
    Unavailable,
)
from cachemind.events import Feedback, Stored
from cachemind.types import Lsn
from cachemind_services.gateway.app import Gateway
from cachemind_services.gateway.deps import GatewayDeps
from tests.bench.running import free_port
from tests.client_bench import Asked, asked
from tests.gateways import World, gateway, memory_deps
from tests.upstreams import (
    Received,
    ScriptedUpstream,
    Send,
    completion,
    piece,
    served,
    sse,
    start,
)

MODEL = "m"
QUICK = Patience(retries=2, first_s=0.01, most_s=0.05)
Make = Callable[..., CacheMind | AsyncCacheMind]


def says(question: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": question}]


@pytest.fixture
def upstream() -> ScriptedUpstream:
    return ScriptedUpstream()


@pytest.fixture
def world(upstream: ScriptedUpstream) -> Iterator[World]:
    with served(upstream) as url, gateway(url) as world:
        yield world


@pytest.fixture(params=[CacheMind, AsyncCacheMind], ids=["blocking", "async"])
def make(request: pytest.FixtureRequest) -> Make:
    found: Make = request.param
    return found


@pytest.fixture
def cache(world: World, make: Make) -> Iterator[Asked]:
    with asked(make, world.url, patience=QUICK) as found:
        yield found


def upstream_text(question: str) -> str:
    request = {"model": MODEL, "messages": says(question)}
    found: str = completion(request)["choices"][0]["message"]["content"]
    return found


def test_nobody_there_is_unavailable_and_was_asked_in_vain(make: Make) -> None:
    with asked(make, f"http://127.0.0.1:{free_port()}", patience=QUICK) as cache:
        with pytest.raises(Unavailable) as raised:
            cache.complete(MODEL, says("ten?"))
        assert raised.value.sent is False


def test_a_gateway_that_hangs_is_given_up_in_time(make: Make) -> None:
    with (
        served(_silent) as url,
        asked(make, url, patience=QUICK) as cache,
    ):
        for ask in (cache.complete, cache.lookup):
            began = time.monotonic()
            with pytest.raises(Unavailable) as raised:
                ask(MODEL, says("ten?"), timeout_s=0.5)
            assert raised.value.sent is True
            assert time.monotonic() - began < 3


@pytest.mark.parametrize(
    ("status", "headers", "body", "error", "sent"),
    [
        (503, {"retry-after": "0"}, b'{"error":{"message":"x"}}', Unavailable, False),
        (500, {}, b"oops", Unavailable, True),
        (404, {}, b'{"error":{"message":"x","code":"not_found"}}', NotFound, None),
        (422, {}, b'{"error":{"message":"x","param":"kind"}}', NotValid, None),
        (302, {"location": "http://127.0.0.1:1/"}, b"", NoCache, None),
        (200, {}, b"{}", NoCache, None),
        (200, {"x-cachemind-outcome": "miss"}, b"<html>", NoCache, None),
    ],
)
def test_an_answer_that_is_none_says_what_it_is(
    make: Make,
    status: int,
    headers: dict[str, str],
    body: bytes,
    error: type[CallFailed],
    sent: bool | None,
) -> None:
    server = Canned(status, headers, body)
    with served(server) as url, asked(make, url, patience=QUICK) as cache:
        with pytest.raises(error) as raised:
            cache.complete(MODEL, says("ten?"))
        if isinstance(raised.value, Unavailable):
            assert raised.value.sent is sent
        # Only what was surely not begun is begun again.
        assert server.calls == (3 if sent is False else 1)
        with pytest.raises(error):
            cache.stream(MODEL, says("ten?"))


def test_a_change_is_asked_again_under_its_key_and_each_call_has_its_own(
    make: Make,
) -> None:
    server = Canned(500, {}, b"")
    with served(server) as url, asked(make, url, patience=QUICK) as cache:
        for change in (
            lambda: cache.put(MODEL, says("ten?"), "10"),
            lambda: cache.invalidate(Selector(everything=True)),
            lambda: cache.feedback("ab" * 32, "cd" * 16, right=True),
        ):
            with pytest.raises(Unavailable):
                change()
        assert server.calls == 9
    assert None not in server.keys
    assert [server.keys.count(key) for key in dict.fromkeys(server.keys)] == [3, 3, 3]


def test_a_change_whose_answer_was_lost_is_done_once(
    world: World, cache: Asked, make: Make
) -> None:
    put = cache.put(MODEL, says("lost?"), "no")
    lossy = Lossy(Gateway(copied(world)))
    with (
        served(lossy, lifespan="on") as url,
        asked(make, url, patience=QUICK) as other,
    ):
        lsn = other.feedback(put.key, "cd" * 16, right=False)
        assert lossy.lost == 1
        assert other.put(MODEL, says("found?"), "yes").lsn == Lsn.parse(lossy.lsns[-1])
        assert lossy.lost == 2
    assert lossy.lsns[0] == str(lsn)
    assert (len(world.of(Feedback)), len(world.of(Stored))) == (1, 2)


def test_a_rollback_that_is_sent_again_has_the_same_id(make: Make) -> None:
    server = Canned(500, {}, b"")
    with (
        served(server) as url,
        asked(make, url, patience=QUICK) as cache,
        pytest.raises(Unavailable),
    ):
        cache.rollback(RollbackGoal(to_version=1))
    assert len(server.queries) == 3
    assert len(set(server.queries)) == 1
    assert b"rollback_id=" in server.queries[0]


@pytest.mark.parametrize("how", ["cut", "error", "noise"])
def test_a_stream_that_breaks_off_is_no_answer(
    world: World, cache: Asked, upstream: ScriptedUpstream, how: str
) -> None:
    upstream.behaviour = breaking(how)
    with pytest.raises(StreamCut):
        cache.stream(MODEL, says(f"{how}?"))


def breaking(how: str) -> Callable[[Received, Send], Any]:
    async def behave(received: Received, send: Send) -> None:
        frames = sse(completion(received.json), include_usage=False)
        await start(send, 200, b"text/event-stream")
        for frame in frames[:3]:
            await piece(send, frame)
        if how == "error":
            await piece(send, b'data: {"error":{"message":"x"}}\n\n')
        if how == "noise":
            await piece(send, b"data: {noise\n\n")
        await piece(send, b"", more=False)

    return behave


def test_an_upstream_that_never_streams_is_taken_whole(
    cache: Asked, upstream: ScriptedUpstream
) -> None:
    async def whole(received: Received, send: Send) -> None:
        await start(send, 200, b"application/json")
        answer = completion({**received.json, "stream": False})
        await piece(send, json.dumps(answer).encode(), more=False)

    upstream.behaviour = whole
    _, parts, answer = cache.stream(MODEL, says("eleven?"))
    assert "".join(part.text for part in parts) == upstream_text("eleven?")
    assert answer.text == upstream_text("eleven?")


def copied(world: World) -> GatewayDeps:
    """Return what a second worker is built from."""
    upstream = HttpUpstream("http://127.0.0.1:1", UpstreamTimeouts())
    return memory_deps(world.log, world.fold, upstream, world.deps.settings)


class Lossy:
    """A gateway of whose answers to each request's first sending nothing arrives."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._seen: set[bytes] = set()
        self.lost = 0
        self.lsns: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        key = dict(scope.get("headers", ())).get(b"idempotency-key")
        if key is None or key in self._seen:
            await self._app(scope, receive, send)
            return
        self._seen.add(key)

        async def lose(message: Any) -> None:
            if message["type"] == "http.response.body":
                self.lsns.append(json.loads(message["body"])["lsn"])
                self.lost += 1

        await self._app(scope, receive, lose)  # and the server answers 500


class Canned:
    """An ASGI app that answers everything the same, or nothing at all."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self._status = status
        self._headers = [(n.encode(), v.encode()) for n, v in headers.items()]
        self._body = body
        self.calls = 0
        self.queries: list[bytes] = []
        self.keys: list[bytes | None] = []

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        self.calls += 1
        self.queries.append(scope["query_string"])
        self.keys.append(dict(scope["headers"]).get(b"idempotency-key"))
        await start(send, self._status, b"application/json", self._headers)
        await piece(send, self._body, more=False)


async def _silent(scope: Any, receive: Any, send: Send) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
