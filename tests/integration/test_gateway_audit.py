"""What audit mode changes for callers: nothing leaves that is not on the log."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from cachemind.events import Outcome
from cachemind_services.gateway.deps import OnWalFailure
from tests.gateways import World, changed, gateway
from tests.upstreams import ScriptedUpstream, served

STRICT = changed(on_wal_failure=OnWalFailure.REFUSE, log_passed_on=True)


@pytest.fixture
def upstream() -> ScriptedUpstream:
    return ScriptedUpstream()


@pytest.fixture
def world(upstream: ScriptedUpstream) -> Iterator[World]:
    with served(upstream) as url, gateway(url, STRICT) as world:
        yield world


def test_an_answer_that_is_none_of_the_caches_has_its_read_on_the_log(
    world: World, upstream: ScriptedUpstream
) -> None:
    answer = httpx.put(
        world.url + "/v1/files/a%2Fb?x=1",
        content=b"\x00raw",
        headers={"x-mine": "1", "accept-encoding": "gzip"},
    )
    assert answer.content == b"/v1/files/a%2Fb?x=1\n\x00raw"
    assert answer.headers["x-echo"] == "1"
    [received] = upstream.received
    assert received.method == "PUT"
    assert received.header("x-mine") == "1"
    assert received.header("accept-encoding") == "gzip"
    [read] = world.reads
    assert (read.outcome, read.reason) == (Outcome.BYPASS, "not-a-chat")
    assert answer.headers["x-cachemind-trace"] == read.trace_id.hex()
    assert answer.headers["x-cachemind-prompt-hash"] == read.prompt_hash.hex()
    assert "x-cachemind-lsn" in answer.headers


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_other_paths_are_refused_while_the_log_is_away(
    world: World, upstream: ScriptedUpstream, method: str
) -> None:
    world.log.go_away()
    answer = httpx.request(method, world.url + "/v1/embeddings")
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "wal_unavailable"
    assert answer.headers["retry-after"] == "1"


def test_what_goes_around_the_cache_has_its_read_all_the_same(world: World) -> None:
    answer = httpx.post(
        world.url + "/v1/chat/completions",
        json={"model": "m", "messages": [{"role": "user", "content": "Why?"}]},
        headers={"x-cachemind-mode": "off"},
    )
    assert answer.status_code == 200
    [read] = world.reads
    assert (read.outcome, read.reason) == (Outcome.BYPASS, "mode-off")
