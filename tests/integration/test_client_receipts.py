"""Receipts by the client library, read back by what verifies them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from cachemind.client import AsyncCacheMind, CacheMind, NotValid
from cachemind.codec.evidence import read_evidence
from tests.client_bench import Asked, asked
from tests.gateways import World, gateway
from tests.integration.test_gateway_receipts import Audited, Signer, audited
from tests.upstreams import ScriptedUpstream, served, wait_until

QUESTION = [{"role": "user", "content": "Why?"}]
OFTEN = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def upstream_url() -> Iterator[str]:
    with served(ScriptedUpstream()) as url:
        yield url


@pytest.fixture
def world(upstream_url: str) -> Iterator[World]:
    with gateway(upstream_url) as world:
        yield world


@pytest.fixture
def host(upstream_url: str, world: World) -> Iterator[Audited]:
    signer = Signer(world)
    with audited(upstream_url, world, signer) as host:
        yield host
    signer.close()


@pytest.fixture(params=[CacheMind, AsyncCacheMind], ids=["blocking", "async"])
def cache(host: Audited, request: pytest.FixtureRequest) -> Iterator[Asked]:
    make: Callable[..., CacheMind | AsyncCacheMind] = request.param
    with asked(make, host.url) as found:
        yield found


def test_a_receipt_is_none_until_it_is_signed_and_can_be_waited_for(
    host: Audited, cache: Asked
) -> None:
    answer = cache.complete("m", QUESTION)
    assert cache.receipt(answer.trace_id) is None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(cache.receipt, answer.trace_id, wait_s=20)
        host.signer.go()
        found = waiting.result(30)
    assert found is not None
    assert found.trace_id == answer.trace_id
    document = json.loads(json.dumps(found.document))
    evidence = read_evidence(document["receipts"][0])
    assert evidence.record.checkpoint == "a checkpoint\n"


def test_all_pages_come_as_one_document(host: Audited, cache: Asked) -> None:
    for _ in range(40):
        host.chat(traceparent=f"00-{OFTEN}-00f067aa0ba902b7-01")
    host.signer.go()
    wait_until(lambda: host.ask(OFTEN).json().get("next_after") is not None)
    found = cache.receipt(OFTEN)
    assert found is not None
    receipts = found.document["receipts"]
    assert isinstance(receipts, list)
    seqs = [each["seq"] for each in receipts if isinstance(each, dict)]
    assert len(seqs) == len(set(seqs)) == 41
    assert found.document["next_after"] is None


def test_nobody_waits_longer_than_the_call_may_take(
    host: Audited, cache: Asked
) -> None:
    answer = cache.complete("m", QUESTION)
    assert cache.receipt(answer.trace_id, wait_s=25, timeout_s=2) is None
    with pytest.raises(NotValid, match="wait"):
        cache.receipt(answer.trace_id, wait_s=10_000, timeout_s=10_000)
