"""Bad input, other paths, the admin API, probes, metrics and the end."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from cachemind.events import Invalidated, Outcome, Stored
from tests.gateways import World, changed, folded, gateway
from tests.upstreams import (
    Gate,
    Received,
    ScriptedUpstream,
    Send,
    completion,
    fails,
    piece,
    served,
    start,
    wait_until,
)

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Why?"}]}
KEY = {"authorization": "Bearer sk-a"}


def read_all(connection: socket.socket) -> bytes:
    answer = b""
    while part := connection.recv(65536):
        answer += part
    return answer


def connect(world: World) -> socket.socket:
    port = urlsplit(world.url).port
    assert port is not None
    return socket.create_connection(("127.0.0.1", port), timeout=5)


@pytest.fixture
def upstream() -> ScriptedUpstream:
    return ScriptedUpstream()


@pytest.fixture
def world(upstream: ScriptedUpstream) -> Iterator[World]:
    with served(upstream) as url, gateway(url) as world:
        yield world


@pytest.fixture
def client(world: World) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=world.url, headers=KEY, timeout=20) as client:
        yield client


@pytest.mark.parametrize(
    ("body", "param"),
    [
        pytest.param(b"", "body", id="empty"),
        pytest.param(b'{"model": "m", "messages": [', "body", id="truncated"),
        pytest.param(b"[]", "body", id="not-an-object"),
        pytest.param(b'{"model":"\xff"}', "body", id="invalid-utf-8"),
        pytest.param(b'{"messages":[]}', "model", id="no-model"),
        pytest.param({**BODY, "model": 5}, "model", id="model-a-number"),
        pytest.param({**BODY, "messages": []}, "messages", id="no-messages"),
        pytest.param({**BODY, "messages": ["x"]}, "messages[0]", id="message-a-string"),
        pytest.param({**BODY, "stream": "yes"}, "stream", id="stream-a-string"),
        pytest.param(
            {**BODY, "max_tokens": -1}, "max_tokens", id="negative-max-tokens"
        ),
        pytest.param({**BODY, "temperature": "hot"}, "temperature", id="temperature"),
        pytest.param({**BODY, "n": 0}, "n", id="n-zero"),
    ],
)
def test_a_wrong_request_is_a_400_that_names_the_field(
    world: World,
    client: httpx.Client,
    upstream: ScriptedUpstream,
    body: Any,
    param: str,
) -> None:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = client.post(CHAT, content=sent)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert upstream.received == []
    assert world.bodies == []


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("x-cachemind-threshold", "2"),
        ("x-cachemind-ttl", "soon"),
        ("x-cachemind-mode", "maybe"),
        ("cache-control", "max-age=x"),
    ],
)
def test_a_wrong_control_is_a_400_that_names_the_header(
    world: World, client: httpx.Client, header: str, value: str
) -> None:
    answer = client.post(CHAT, json=BODY, headers={header: value})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == header
    assert world.bodies == []


def test_a_body_past_the_limit_is_a_413(upstream: ScriptedUpstream) -> None:
    settings = changed(max_body_bytes=100_000)
    with served(upstream) as url, gateway(url, settings) as world:
        long = {**BODY, "messages": [{"role": "user", "content": "x" * 200_000}]}
        answer = httpx.post(world.url + CHAT, json=long)
        assert answer.status_code == 413
        assert answer.json()["error"]["param"] == "body"
        assert upstream.received == []
        assert world.bodies == []


def test_a_client_that_sends_on_sees_its_413(world: World) -> None:
    with connect(world) as raw:
        raw.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\n" % CHAT.encode())
        raw.sendall(b"Content-Length: %d\r\n\r\n" % (40 * 2**20))
        for _ in range(40):
            raw.sendall(b"x" * 2**20)
        assert read_all(raw).split(b" ")[1] == b"413"


def test_ten_megabytes_pass_through_exactly(
    world: World, client: httpx.Client, upstream: ScriptedUpstream
) -> None:
    sent = json.dumps(BODY).encode()[:-1] + b" " * 10_000_000 + b"}"
    answer = client.post(CHAT, content=sent)
    assert answer.status_code == 200
    assert answer.headers["x-cachemind-outcome"] == "bypass"
    assert upstream.chats[0].body == sent
    assert [read.outcome for read in world.reads] == [Outcome.BYPASS]
    assert world.of(Stored) == []


def test_unknown_fields_reach_upstream_exactly(
    client: httpx.Client, upstream: ScriptedUpstream
) -> None:
    sent = b'{ "x_odd":1.50, "model":"m","messages":[{"role":"user","content":"Hi"}] }'
    assert client.post(CHAT, content=sent).status_code == 200
    assert upstream.chats[0].body == sent


def test_a_body_that_readers_disagree_on_is_not_stored(
    world: World, client: httpx.Client
) -> None:
    sent = json.dumps(BODY)[:-1] + ', "model": "m"}'
    for _ in range(2):
        answer = client.post(CHAT, content=sent)
        assert answer.headers["x-cachemind-outcome"] == "miss"
        assert "ambiguous-body" in answer.headers["cache-status"]
    assert world.of(Stored) == []


def test_header_injection_is_impossible(world: World, upstream: Any) -> None:
    parts = urlsplit(world.url)
    assert parts.port is not None
    body = json.dumps(BODY).encode()
    for smuggled in (b"a\rX-Evil: 1", b"a\nX-Evil: 1", b"a\x00b"):
        with socket.create_connection(("127.0.0.1", parts.port)) as raw:
            raw.settimeout(5)
            raw.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
                b"Connection: close\r\nTraceparent: " + smuggled + b"\r\n"
                b"X-CacheMind-Mode: " + smuggled + b"\r\n"
                b"Content-Length: %d\r\n\r\n" % len(body) + body
            )
            answer = read_all(raw)
        assert b"x-evil" not in answer.lower().split(b"\r\n\r\n")[0]
        assert answer.split(b" ")[1] in (b"400", b"200")


def test_a_header_that_is_not_text_is_a_400_that_names_it(world: World) -> None:
    body = json.dumps(BODY).encode()
    with connect(world) as raw:
        raw.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Odd: \xff\r\n"
            b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        head, _, answered = read_all(raw).partition(b"\r\n\r\n")
    assert head.split(b" ")[1] == b"400"
    assert json.loads(answered)["error"]["param"] == "header x-odd"


def test_no_target_names_another_server(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(0.2)
        port = other.getsockname()[1]
        for target in (b"*", b"*@127.0.0.1:%d/" % port):
            with connect(world) as raw:
                raw.sendall(
                    b"OPTIONS %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
                    % target
                )
                assert read_all(raw).split(b" ")[1] == b"400"
        with pytest.raises(TimeoutError):
            other.accept()


def test_a_broken_traceparent_is_replaced(client: httpx.Client) -> None:
    answer = client.post(CHAT, json=BODY, headers={"traceparent": "00-zz-1-1"})
    assert len(answer.headers["x-cachemind-trace"]) == 32


# ---- other paths --------------------------------------------------------------------


def test_other_paths_pass_untouched(
    world: World, client: httpx.Client, upstream: ScriptedUpstream
) -> None:
    answer = client.request(
        "PUT", "/v1/files/a%2Fb?x=%20y", content=b"\x00raw", headers={"x-mine": "1"}
    )
    assert answer.content == b"/v1/files/a%2Fb?x=%20y\n\x00raw"
    assert answer.headers["x-echo"] == "1"
    assert "via" not in answer.headers
    received = upstream.received[0]
    assert (received.method, received.target) == ("PUT", "/v1/files/a%2Fb?x=%20y")
    assert received.header("x-mine") == "1"
    assert received.header("authorization") == "Bearer sk-a"
    assert received.header("via") is None
    assert world.bodies == []


def test_an_upload_and_an_answer_stream_through_the_proxy(
    client: httpx.Client, upstream: ScriptedUpstream
) -> None:
    async def drip(received: Received, send: Send) -> None:
        await start(send, 201, b"text/event-stream")
        for _ in range(3):
            await piece(send, b"data: %d\n\n" % len(received.body))
            await asyncio.sleep(0.01)
        await piece(send, b"", more=False)

    upstream.other = drip
    body = (b"x" * 100_000 for _ in range(30))
    with client.stream("POST", "/v1/audio", content=body) as answer:
        assert answer.status_code == 201
        assert b"".join(answer.iter_raw()) == b"data: 3000000\n\n" * 3


def test_a_hang_up_reaches_the_proxied_upstream(
    client: httpx.Client, upstream: ScriptedUpstream
) -> None:
    async def endless(_received: Received, send: Send) -> None:
        await start(send, 200, b"text/plain")
        while True:
            await piece(send, b"x")
            await asyncio.sleep(0.01)

    upstream.other = endless
    with client.stream("GET", "/v1/endless") as answer:
        next(answer.iter_raw())
    assert upstream.hung_up.wait(5)


@pytest.mark.parametrize("sent", [b"", b"half"])
@pytest.mark.parametrize("path", ["/v1/files", CHAT])
def test_a_hang_up_within_an_upload_is_no_error_of_ours(
    upstream: ScriptedUpstream, sent: bytes, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with served(upstream) as url, gateway(url) as world:
        with connect(world) as raw:
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
            raw.sendall(head.encode())
            time.sleep(0.2)  # so that the gateway waits for the body by now
            raw.sendall(sent)
        httpx.get(world.url + "/healthz")
        time.sleep(0.2)
    assert [r.getMessage() for r in caplog.records if r.levelname == "ERROR"] == []


def test_an_error_of_another_path_passes(
    client: httpx.Client, upstream: ScriptedUpstream
) -> None:
    upstream.other = fails(418, b"tea")
    answer = client.get("/v1/models")
    assert (answer.status_code, answer.content) == (418, b"tea")


def test_a_protocol_upgrade_is_a_501(client: httpx.Client) -> None:
    headers = {"connection": "Upgrade", "upgrade": "websocket"}
    assert client.get("/v1/realtime", headers=headers).status_code == 501


# ---- the admin API ------------------------------------------------------------------


def put(client: httpx.Client, **more: Any) -> httpx.Response:
    body = {"request": BODY, "response": completion(BODY, "By hand."), **more}
    return client.post("/v1/cachemind/entries", json=body)


def test_what_is_put_is_served(
    world: World, client: httpx.Client, upstream: ScriptedUpstream
) -> None:
    stored = put(client, ttl_s=60, tags=["a", "b"])
    assert stored.status_code == 201
    answer = client.post(CHAT, json=BODY)
    assert answer.headers["x-cachemind-outcome"] == "hit_exact"
    assert answer.json() == completion(BODY, "By hand.")
    assert upstream.received == []
    event = world.of(Stored)[0]
    assert (event.ttl_ms, event.tags) == (60_000, ("a", "b"))
    assert event.evidence.rule == "put"
    shown = client.get(f"/v1/cachemind/entries/{stored.json()['key']}").json()
    assert shown["tags"] == ["a", "b"]
    assert shown["response"] == completion(BODY, "By hand.")
    other = client.post(CHAT, json=BODY, headers={"authorization": "Bearer sk-b"})
    assert other.headers["x-cachemind-outcome"] == "miss"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "request"),
        ({"request": {}}, "model"),
        ({"request": BODY}, "response"),
        ({"request": BODY, "response": {}}, "response"),
        (
            {"request": BODY, "response": completion({**BODY, "n": 2})},
            "response.choices",
        ),
        ({"request": BODY, "response": completion(BODY), "ttl_s": 0}, "ttl_s"),
        ({"request": BODY, "response": completion(BODY), "tags": "x"}, "tags"),
        ({"request": BODY, "response": completion(BODY), "tags": [1]}, "tags[0]"),
    ],
)
def test_a_wrong_put_names_the_field(
    world: World, client: httpx.Client, body: Any, param: str
) -> None:
    answer = client.post("/v1/cachemind/entries", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert world.bodies == []


@pytest.mark.parametrize(
    ("kind", "value"), [("tag", "a"), ("model", "m"), ("all", ""), ("age", "0")]
)
def test_an_invalidated_entry_is_not_served(
    world: World, client: httpx.Client, kind: str, value: str
) -> None:
    put(client, tags=["a"])
    body = {"kind": kind, "value": value, "reason": "test"}
    done = client.post("/v1/cachemind/invalidate", json=body)
    assert done.status_code == 200
    assert done.json()["folded"]
    assert done.json()["removed"] == 1
    again = client.post("/v1/cachemind/invalidate", json=body)
    assert again.json()["removed"] == 0
    assert client.post(CHAT, json=BODY).headers["x-cachemind-outcome"] == "miss"
    assert world.of(Invalidated)[0].reason == "test"


def test_an_invalidation_holds_before_it_is_folded(
    world: World, client: httpx.Client
) -> None:
    key = put(client).json()["key"]
    wait_until(lambda: folded(world))
    world.fold.pause()
    body = {"kind": "key", "value": key}
    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(client.post, "/v1/cachemind/invalidate", json=body)
        wait_until(lambda: world.of(Invalidated))
        answer = client.post(CHAT, json=BODY)
        assert answer.headers["x-cachemind-outcome"] == "miss"
        again = client.post(CHAT, json=BODY)
        assert again.headers["x-cachemind-outcome"] == "hit_exact"
        world.fold.resume()
        assert done.result().status_code in (200, 202)
    wait_until(lambda: folded(world))
    assert client.post(CHAT, json=BODY).headers["x-cachemind-outcome"] == "hit_exact"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "kind"),
        ({"kind": "colour"}, "kind"),
        ({"kind": "key", "value": "zz"}, "value"),
        ({"kind": "tag"}, "value"),
        ({"kind": "all", "reason": 5}, "reason"),
    ],
)
def test_a_wrong_invalidation_names_the_field(
    world: World, client: httpx.Client, body: Any, param: str
) -> None:
    answer = client.post("/v1/cachemind/invalidate", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert world.bodies == []


def test_stats_count(world: World, client: httpx.Client) -> None:
    for _ in range(3):
        client.post(CHAT, json=BODY)
    wait_until(lambda: folded(world))
    wait_until(lambda: client.get("/v1/cachemind/stats").json()["entries"] == 1)
    found = client.get("/v1/cachemind/stats").json()
    assert found["namespace"] == "shop"
    assert found["version"] == 1
    assert found["counts"]["hit_exact"] == 2
    assert found["counts"]["miss"] == 1


@pytest.mark.parametrize("key", ["zz", "0" * 63, "0" * 64, "..%2Fstats"])
def test_an_entry_that_is_not_there_is_a_4xx(client: httpx.Client, key: str) -> None:
    assert client.get(f"/v1/cachemind/entries/{key}").status_code in (400, 404)


def test_an_unknown_admin_call_never_goes_upstream(
    client: httpx.Client, upstream: ScriptedUpstream
) -> None:
    assert client.get("/v1/cachemind/nothing").status_code == 404
    assert upstream.received == []


def test_the_admin_api_says_that_the_log_is_away(
    world: World, client: httpx.Client
) -> None:
    world.log.go_away()
    answer = put(client)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    body = {"kind": "all"}
    assert client.post("/v1/cachemind/invalidate", json=body).status_code == 503


# ---- probes, metrics, the end -------------------------------------------------------


def test_readiness_waits_until_the_store_has_caught_up(
    upstream: ScriptedUpstream,
) -> None:
    with served(upstream) as url, gateway(url, paused=True, preload=3) as world:
        assert httpx.get(world.url + "/healthz").status_code == 200
        answer = httpx.get(world.url + "/readyz")
        assert answer.status_code == 503
        assert answer.json()["reasons"]
        world.fold.resume()
        wait_until(lambda: httpx.get(world.url + "/readyz").status_code == 200)
        assert httpx.get(world.url + "/readyz").json()["reasons"] == []


def test_readiness_says_that_the_log_does_not_answer(
    upstream: ScriptedUpstream,
) -> None:
    with served(upstream) as url, gateway(url, log_away=True) as world:
        wait_until(lambda: httpx.get(world.url + "/readyz").status_code == 503)
        wait_until(
            lambda: "log" in httpx.get(world.url + "/readyz").json()["reasons"][0]
        )
        world.log.come_back()
        wait_until(lambda: httpx.get(world.url + "/readyz").status_code == 200)


def test_a_log_that_goes_away_is_a_warning_and_takes_no_gateway_out(
    world: World, client: httpx.Client
) -> None:
    world.log.go_away()
    put(client)
    wait_until(lambda: httpx.get(world.url + "/readyz").json()["warnings"])
    answer = httpx.get(world.url + "/readyz")
    assert answer.status_code == 200
    assert "log" in answer.json()["warnings"][0]
    world.log.come_back()
    wait_until(lambda: not httpx.get(world.url + "/readyz").json()["warnings"])


def test_metrics_count_outcomes(world: World, client: httpx.Client) -> None:
    for _ in range(3):
        client.post(CHAT, json=BODY)
    client.post(CHAT, content=b"{")
    text = client.get("/metrics").text
    assert 'cachemind_requests_total{outcome="hit_exact"} 2.0' in text
    assert 'cachemind_requests_total{outcome="miss"} 1.0' in text
    assert "cachemind_requests_invalid_total 1.0" in text
    assert 'cachemind_admissions_total{reason="policy-default"} 1.0' in text
    assert 'cachemind_wal_group_reads_bucket{le="1.0"} 3.0' in text
    assert "Why?" not in text


def test_look_ups_that_arrive_together_share_a_record(
    world: World, client: httpx.Client
) -> None:
    client.post(CHAT, json=BODY)
    wait_until(lambda: folded(world))
    before = len(world.bodies)
    world.log.hold()
    with ThreadPoolExecutor(20) as threads:
        found = [threads.submit(client.post, CHAT, json=BODY) for _ in range(20)]
        threading.Event().wait(0.2)
        world.log.release()
        assert {each.result().status_code for each in found} == {200}
    assert len(world.reads) == 21
    assert len(world.bodies) - before < 10
    sequence = [envelope.writer_seq for envelope in world.envelopes]
    assert sequence == list(range(1, len(sequence) + 1))


def test_a_stop_lets_what_is_in_flight_end(upstream: ScriptedUpstream) -> None:
    gate = Gate()
    upstream.behaviour = gate
    with ThreadPoolExecutor(1) as threads, served(upstream) as url:
        with gateway(url) as world:
            waiting = threads.submit(httpx.post, world.url + CHAT, json=BODY)
            wait_until(lambda: upstream.chats)
            threading.Timer(0.3, gate.open).start()
        assert waiting.result().status_code == 200
        assert len(world.of(Stored)) == 1
