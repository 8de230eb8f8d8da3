"""What must never be stored or served: errors, cuts, hang-ups, a log that is away."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from cachemind.adapters.memory_embedder import MemoryEmbedder
from cachemind.adapters.upstream_http import UpstreamTimeouts
from cachemind.events import Outcome, Refused, Stored
from cachemind_services.gateway.deps import OnWalFailure, WalAck
from tests.gateways import World, changed, gateway
from tests.upstreams import (
    Gate,
    Received,
    ScriptedUpstream,
    Send,
    answers,
    completion,
    fails,
    good,
    piece,
    served,
    sse,
    start,
    streams,
    wait_until,
)

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Why?"}]}
STREAM = {**BODY, "stream": True}
FRAMES = sse(completion(BODY), include_usage=True)


@pytest.fixture
def upstream() -> ScriptedUpstream:
    return ScriptedUpstream()


@pytest.fixture
def world(upstream: ScriptedUpstream) -> Iterator[World]:
    with served(upstream) as url, gateway(url) as world:
        yield world


def post(world: World, body: Any = BODY, **headers: str) -> httpx.Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    # Plain HTTP: verify=False only saves loading the CA file for every call.
    return httpx.post(
        world.url + CHAT,
        json=body,
        headers=sent,
        timeout=20,
        verify=False,  # noqa: S501
    )


def read_stream(world: World) -> tuple[bytes, bool]:
    """Return what came of a stream, and whether the connection was cut."""
    passed = b""
    with httpx.stream("POST", world.url + CHAT, json=STREAM) as answer:
        try:
            for part in answer.iter_raw():
                passed += part
        except httpx.RemoteProtocolError:
            return passed, True
    return passed, False


def refusals(world: World) -> list[tuple[str, int]]:
    return [(each.reason, each.upstream_status) for each in world.of(Refused)]


def test_fifty_identical_misses_make_one_upstream_call(
    world: World, upstream: ScriptedUpstream
) -> None:
    gate = Gate()
    upstream.behaviour = gate
    with ThreadPoolExecutor(50) as threads:
        waiting = [threads.submit(post, world) for _ in range(50)]
        wait_until(lambda: len(world.reads) == 50)
        gate.open()
        found = [each.result() for each in waiting]
    assert len(upstream.chats) == 1
    assert {each.content for each in found} == {found[0].content}
    assert sum("collapsed" in each.headers["cache-status"] for each in found) == 49
    assert len(world.of(Stored)) == 1


def test_followers_of_a_stream_stream_too(
    world: World, upstream: ScriptedUpstream
) -> None:
    gate = Gate(streams(FRAMES[3:]))

    async def begin(received: Received, send: Send) -> None:
        await start(send, 200, b"text/event-stream")
        for frame in FRAMES[:3]:
            await piece(send, frame)

        async def rest(message: Any) -> None:
            if message["type"] == "http.response.body":
                await send(message)

        await gate(received, rest)

    upstream.behaviour = begin
    url = world.url + CHAT
    with (
        httpx.stream("POST", url, json=STREAM) as leader,
        httpx.stream("POST", url, json=STREAM) as follower,
    ):
        streamed = [leader.iter_raw(), follower.iter_raw()]
        begun = [next(each) for each in streamed]
        assert all(each.startswith(FRAMES[0]) for each in begun)
        assert world.of(Stored) == []
        gate.open()
        ends = [b"".join(each) for each in streamed]
    whole = {a + b for a, b in zip(begun, ends, strict=True)}
    expected = [frame for frame in FRAMES if b'"choices": []' not in frame]
    assert whole == {b"".join(expected)}
    assert len(upstream.chats) == 1


def test_a_leader_that_hangs_up_leaves_its_followers_their_answer(
    world: World, upstream: ScriptedUpstream
) -> None:
    gate = Gate()
    upstream.behaviour = gate
    with ThreadPoolExecutor(1) as threads:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(world.url + CHAT, json=BODY, timeout=0.3)
        follower = threads.submit(post, world)
        wait_until(lambda: len(world.reads) == 2)
        gate.open()
        assert follower.result().status_code == 200


def test_an_answer_that_nobody_waits_for_is_given_up(
    world: World, upstream: ScriptedUpstream
) -> None:
    upstream.behaviour = Gate()
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(world.url + CHAT, json=BODY, timeout=0.2)
    assert upstream.hung_up.wait(5)
    wait_until(lambda: refusals(world) == [("client-gone", 0)])
    assert world.of(Stored) == []


def test_a_client_that_leaves_a_stream_half_way_stores_nothing(
    world: World, upstream: ScriptedUpstream
) -> None:
    async def endless(_received: Received, send: Send) -> None:
        await start(send, 200, b"text/event-stream")
        while True:
            await piece(send, FRAMES[1])
            await asyncio.sleep(0.01)

    upstream.behaviour = endless
    with httpx.stream("POST", world.url + CHAT, json=STREAM) as answer:
        next(answer.iter_raw())
    assert upstream.hung_up.wait(5)
    wait_until(lambda: refusals(world) == [("client-gone", 200)])
    assert world.of(Stored) == []


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
def test_an_upstream_error_passes_through_and_is_not_stored(
    world: World, upstream: ScriptedUpstream, status: int
) -> None:
    upstream.behaviour = fails(status, b'{"error":{"message":"odd  spacing"}}')
    for _ in range(2):
        answer = post(world)
        assert answer.status_code == status
        assert answer.content == b'{"error":{"message":"odd  spacing"}}'
        assert answer.headers["x-request-id"] == "req-1"
        assert answer.headers["retry-after"] == "7"
        assert "upstream-status" in answer.headers["cache-status"]
    assert len(upstream.chats) == 2
    assert world.of(Stored) == []
    wait_until(lambda: refusals(world) == [("upstream-status", status)] * 2)


def test_followers_of_a_failing_leader_get_its_error(
    world: World, upstream: ScriptedUpstream
) -> None:
    gate = Gate(fails(500))
    upstream.behaviour = gate
    with ThreadPoolExecutor(20) as threads:
        waiting = [threads.submit(post, world) for _ in range(20)]
        wait_until(lambda: len(world.reads) == 20)
        gate.open()
        assert {each.result().status_code for each in waiting} == {500}
    assert len(upstream.chats) == 1


@pytest.mark.parametrize(
    ("frames", "cut", "reason"),
    [
        pytest.param(FRAMES[:4], True, "stream-cut", id="connection-breaks"),
        pytest.param(FRAMES[:4], False, "stream-cut", id="ends-without-done"),
        pytest.param(
            [*FRAMES[:4], FRAMES[-1]], False, "stream-cut", id="done-without-finish"
        ),
        pytest.param(
            [*FRAMES[:2], b'data: {"error":{"message":"x"}}\n\n', FRAMES[-1]],
            False,
            "stream-error",
            id="error-chunk",
        ),
        pytest.param(
            [*FRAMES[:2], b"event: error\ndata: {}\n\n", *FRAMES[2:]],
            False,
            "stream-error",
            id="error-event",
        ),
        pytest.param(
            [FRAMES[0], b"data: {not json\n\n", *FRAMES[1:]],
            False,
            "malformed",
            id="garbage",
        ),
        pytest.param([b"\xff\xfe\x00garbage"], False, "stream-cut", id="no-events"),
    ],
)
def test_a_broken_stream_is_passed_on_and_not_stored(
    world: World,
    upstream: ScriptedUpstream,
    frames: list[bytes],
    cut: bool,
    reason: str,
) -> None:
    upstream.behaviour = streams(frames, cut=cut)
    passed, was_cut = read_stream(world)
    assert was_cut == cut
    kept = [frame for frame in frames if b'"choices": []' not in frame]
    assert passed == b"".join(kept)
    wait_until(lambda: refusals(world) == [(reason, 200)])
    assert world.of(Stored) == []
    upstream.behaviour = good
    assert post(world, STREAM).headers["x-cachemind-outcome"] == "miss"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param(b"{", "malformed", id="not-json"),
        pytest.param(b"[]", "malformed", id="not-an-object"),
        pytest.param(b'{"object":"chat.completion","choices":[]}', "malformed"),
        pytest.param(
            json.dumps(completion({**BODY, "n": 2})).encode(), "choices-missing"
        ),
        pytest.param(
            json.dumps(completion(BODY)).replace('"stop"', '"length"').encode(),
            "unfinished",
        ),
        pytest.param(
            json.dumps(completion(BODY, " ")).encode(), "empty", id="empty-answer"
        ),
    ],
)
def test_an_incomplete_answer_is_passed_on_and_not_stored(
    world: World, upstream: ScriptedUpstream, body: bytes, reason: str
) -> None:
    upstream.behaviour = answers(body)
    answer = post(world)
    assert (answer.status_code, answer.content) == (200, body)
    wait_until(lambda: refusals(world) == [(reason, 200)])
    assert world.of(Stored) == []


def test_an_answer_past_the_limit_is_passed_on_and_not_stored(
    upstream: ScriptedUpstream,
) -> None:
    long = json.dumps(completion(BODY, "long " * 3_000)).encode()
    upstream.behaviour = answers(long)
    settings = changed(max_cacheable_bytes=10_000)
    with served(upstream) as url, gateway(url, settings) as world:
        assert post(world).content == long
        wait_until(lambda: refusals(world) == [("too-large", 200)])
        frames = sse(completion(BODY, "long " * 3_000), include_usage=False)
        upstream.behaviour = streams(frames)
        assert post(world, STREAM).content == b"".join(frames)
        wait_until(lambda: refusals(world) == [("too-large", 200)] * 2)


def test_an_upstream_that_is_not_there_is_a_502() -> None:
    with gateway("http://127.0.0.1:1") as world:
        answer = post(world)
        assert answer.status_code == 502
        assert answer.json()["error"]["code"] == "upstream_unavailable"
        wait_until(lambda: refusals(world) == [("upstream-unavailable", 0)])


def test_a_silent_upstream_is_a_504(upstream: ScriptedUpstream) -> None:
    upstream.behaviour = Gate()
    with (
        served(upstream) as url,
        gateway(url, timeouts=UpstreamTimeouts(first_byte_s=0.2)) as world,
    ):
        assert post(world).status_code == 504


def test_without_the_log_upstream_answers_and_says_so(
    world: World, upstream: ScriptedUpstream
) -> None:
    assert post(world).headers["x-cachemind-outcome"] == "miss"
    world.log.go_away()
    for _ in range(3):
        answer = post(world)
        assert answer.status_code == 200
        assert answer.headers["x-cachemind-outcome"] == "bypass"
        assert "wal-unavailable" in answer.headers["cache-status"]
        assert "x-cachemind-lsn" not in answer.headers
    assert len(upstream.chats) == 4
    world.log.come_back()
    wait_until(lambda: post(world).headers["x-cachemind-outcome"] == "hit_exact")
    assert len(world.of(Stored)) == 1


def test_a_log_that_hangs_costs_its_timeout_once(upstream: ScriptedUpstream) -> None:
    # Long until the log is tried again: ten requests fit in on a busy machine too.
    settings = changed(wal_retry_s=4.0)
    with served(upstream) as url, gateway(url, settings) as world:
        post(world)
        world.log.hold()
        first = post(world)
        assert first.headers["x-cachemind-outcome"] == "bypass"
        assert first.elapsed.total_seconds() >= 0.5
        assert all(post(world).elapsed.total_seconds() < 0.5 for _ in range(10))
        world.log.release()
        wait_until(lambda: post(world).headers["x-cachemind-outcome"] == "hit_exact")


def test_a_miss_whose_stored_is_not_acknowledged_is_not_cached(
    world: World, upstream: ScriptedUpstream
) -> None:
    gate = Gate()
    upstream.behaviour = gate
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(post, world)
        wait_until(lambda: len(world.reads) == 1)
        world.log.go_away()
        gate.open()
        answer = waiting.result()
    assert answer.status_code == 200
    assert "stored" not in answer.headers["cache-status"]
    assert "wal-unavailable" in answer.headers["cache-status"]
    world.log.come_back()
    assert world.of(Stored) == []


def test_refuse_answers_503_while_the_log_is_away(upstream: ScriptedUpstream) -> None:
    settings = changed(on_wal_failure=OnWalFailure.REFUSE)
    with served(upstream) as url, gateway(url, settings) as world:
        assert post(world).status_code == 200
        world.log.go_away()
        for body in (BODY, STREAM, {**BODY, "model": "other"}):
            answer = post(world, body)
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "1"
            assert answer.json()["error"]["code"] == "wal_unavailable"
        world.log.come_back()
        wait_until(lambda: post(world).status_code == 200)


def test_async_answers_before_the_acknowledgement(upstream: ScriptedUpstream) -> None:
    settings = changed(wal_ack=WalAck.ASYNC, wal_timeout_s=5.0, wal_buffer=8)
    with served(upstream) as url, gateway(url, settings) as world:
        post(world)
        world.log.hold()
        found = [post(world).headers["x-cachemind-outcome"] for _ in range(10)]
        assert found == ["hit_exact"] * 8 + ["bypass"] * 2
        world.log.release()
        wait_until(lambda: len(world.reads) == 9)


@pytest.mark.parametrize(
    ("control", "reason"),
    [("no-cache", "no-cache"), ("max-age=0", "max-age")],
)
def test_a_request_may_refuse_a_stored_answer(
    world: World, upstream: ScriptedUpstream, control: str, reason: str
) -> None:
    post(world)
    answer = post(world, cache_control=control)
    assert answer.headers["x-cachemind-outcome"] == "miss"
    assert world.reads[-1].reason == reason
    assert len(upstream.chats) == 2


def test_no_store_stores_nothing(world: World, upstream: ScriptedUpstream) -> None:
    for _ in range(2):
        answer = post(world, cache_control="no-store")
        assert answer.headers["x-cachemind-outcome"] == "miss"
    assert len(upstream.chats) == 2
    assert world.of(Stored) == []


def test_only_if_cached_never_goes_upstream(
    world: World, upstream: ScriptedUpstream
) -> None:
    answer = post(world, cache_control="only-if-cached")
    assert answer.status_code == 504
    assert answer.headers["x-cachemind-outcome"] == "miss"
    assert upstream.chats == []
    post(world)
    answer = post(world, cache_control="only-if-cached")
    assert answer.headers["x-cachemind-outcome"] == "hit_exact"


def test_mode_off_goes_around_the_cache(
    world: World, upstream: ScriptedUpstream
) -> None:
    post(world)
    answer = post(world, x_cachemind_mode="off", accept_encoding="gzip")
    assert answer.headers["x-cachemind-outcome"] == "bypass"
    assert len(upstream.chats) == 2
    assert upstream.chats[0].header("accept-encoding") == "identity"
    assert upstream.chats[1].header("accept-encoding") == "gzip"
    assert upstream.chats[1].header("x-cachemind-mode") is None
    assert [read.outcome for read in world.reads] == [Outcome.MISS, Outcome.BYPASS]


def test_an_entry_expires(world: World, upstream: ScriptedUpstream) -> None:
    post(world, x_cachemind_ttl="1")
    assert post(world).headers["x-cachemind-outcome"] == "hit_exact"
    wait_until(lambda: post(world).headers["x-cachemind-outcome"] == "miss")
    assert len(upstream.chats) == 2


class Late(MemoryEmbedder):
    """An encoder that takes longer than a look-up waits."""

    def embed(self, text: str) -> bytes | None:
        time.sleep(0.15)
        return super().embed(text)


def test_a_late_encoder_makes_no_entry_without_a_vector(
    upstream: ScriptedUpstream,
) -> None:
    gate = Gate()
    upstream.behaviour = gate
    settings = changed(embed_deadline_s=0.05)
    with (
        served(upstream) as url,
        gateway(url, settings, embedder=Late()) as world,
        ThreadPoolExecutor(1) as threads,
    ):
        waiting = threads.submit(post, world)
        wait_until(lambda: upstream.chats)
        threading.Timer(1.0, gate.open).start()
        assert waiting.result().headers["x-cachemind-outcome"] == "miss"
        assert world.reads[0].reason == "encoder-unavailable"
        assert world.of(Stored)[0].embedding is not None
        other = {**BODY, "messages": [{"role": "user", "content": "How?"}]}
        upstream.behaviour = good
        began = time.monotonic()
        assert post(world, other).status_code == 200
        assert time.monotonic() - began < 1.0
        assert world.of(Stored)[1].embedding is None


def test_an_upstream_without_stream_options_still_streams(
    world: World, upstream: ScriptedUpstream
) -> None:
    async def old(received: Received, send: Send) -> None:
        if "stream_options" in received.json:
            await fails(400)(received, send)
        else:
            await good(received, send)

    upstream.behaviour = old
    assert post(world, STREAM).status_code == 200
    other = {**STREAM, "messages": [{"role": "user", "content": "How?"}]}
    assert post(world, other).status_code == 200
    assert len(upstream.chats) == 3
    assert post(world, STREAM).headers["x-cachemind-outcome"] == "hit_exact"
