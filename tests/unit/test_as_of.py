from __future__ import annotations

from typing import Any

import pytest

from cachemind.adapters.nowhere import FixedClock, NoLog, NoUpstream
from cachemind.errors import UpstreamUnavailable
from cachemind.ports import UpstreamRequest
from cachemind_services.gateway.as_of import AsOfGateway
from cachemind_services.gateway.http_io import Message, Receive, Scope, Send, send_json


class Inner:
    """An application that notes what it was asked and answers with an LSN."""

    def __init__(self) -> None:
        self.asked: list[Scope] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.append(scope)
        if scope["type"] == "http":
            await send_json(send, 200, {}, ((b"x-cachemind-lsn", b"0@0"),))


async def asked(method: str, path: str, inner: Inner) -> tuple[int, dict[bytes, bytes]]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    scope: dict[str, Any] = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(b"cache-control", b"no-cache")],
    }
    await AsOfGateway(inner, "default-v127")(scope, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"])


async def test_a_look_up_never_goes_upstream_and_is_marked() -> None:
    inner = Inner()
    status, headers = await asked("POST", "/v1/chat/completions", inner)
    assert status == 200
    assert headers[b"x-cachemind-as-of"] == b"default-v127"
    assert b"x-cachemind-lsn" not in headers
    assert inner.asked[0]["headers"] == [
        (b"cache-control", b"no-cache"),
        (b"cache-control", b"only-if-cached"),
    ]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/cachemind/entries"),
        ("POST", "/v1/cachemind/invalidate"),
        ("POST", "/v1/rollback"),
        ("POST", "/v1/embeddings"),
        ("GET", "/v1/models"),
        ("DELETE", "/v1/cachemind/entries/00"),
    ],
)
async def test_nothing_is_changed_or_passed_on(method: str, path: str) -> None:
    inner = Inner()
    status, headers = await asked(method, path, inner)
    assert status == 405
    assert headers[b"x-cachemind-as-of"] == b"default-v127"
    assert inner.asked == []


@pytest.mark.parametrize("path", ["/readyz", "/v1/cachemind/stats", "/metrics"])
async def test_what_only_reads_is_answered(path: str) -> None:
    inner = Inner()
    status, headers = await asked("GET", path, inner)
    assert (status, len(inner.asked)) == (200, 1)
    assert b"x-cachemind-as-of" in headers


async def test_the_ports_of_the_past_lead_nowhere() -> None:
    log = NoLog()
    assert log.append(b"k", b"v", ()).done()
    assert log.close(1.0) == 0
    upstream = NoUpstream()
    request = UpstreamRequest(method="GET", target="/", headers=(), body=b"")
    with pytest.raises(UpstreamUnavailable):
        async with upstream.send(request):
            pass
    await upstream.close()
    assert FixedClock(7).now_ns() == 7
