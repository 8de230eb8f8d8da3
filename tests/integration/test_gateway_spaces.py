"""Many namespaces on one worker: each its own, what they share is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.memory_data_keys import MemoryDataKeys
from cachemind.adapters.memory_log import MemoryLog
from cachemind.adapters.upstream_http import HttpUpstream, UpstreamTimeouts
from cachemind.codec.codec import Codec
from cachemind.core.access import Role
from cachemind.core.partitioner import partition_of
from cachemind.core.payloads import Payloads, SealedPayloads
from cachemind.core.sealed_payload import is_sealed
from cachemind.errors import PayloadUnreadable
from cachemind.events import Stored
from cachemind.ports.data_keys import HeldKeys
from cachemind.types import Namespace, Offset
from cachemind_services.gateway.deps import Access, GatewayDeps
from cachemind_services.gateway.parts import Parts
from cachemind_services.gateway.shared import Shared
from cachemind_services.gateway.spaces import Spaces, TooManyOpen
from tests.access_host import KeyRing, envelopes_of, wait_for_key
from tests.gateways import (
    PARTITIONS,
    SETTINGS,
    Fold,
    World,
    changed,
    gateway,
    memory_deps,
)
from tests.payload_hosts import KeyHost
from tests.upstreams import ScriptedUpstream, served, wait_until

TENANTS = [f"tenant-{number}" for number in range(12)]


def chat(prompt: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": prompt}]
    return {"model": "m", "messages": messages, "temperature": 0}


@pytest.fixture
def upstream() -> ScriptedUpstream:
    return ScriptedUpstream()


@pytest.fixture
def ring() -> KeyRing:
    ring = KeyRing()
    for tenant in TENANTS:
        ring.issue(tenant, Role.CACHE_ADMIN, tenant)
    return ring


def ask(world: World, ring: KeyRing, tenant: str, prompt: str) -> httpx.Response:
    headers = {"X-CacheMind-Key": ring.texts[tenant]}
    url = f"{world.url}/v1/chat/completions"
    return httpx.post(url, headers=headers, json=chat(prompt))


def outcome(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return response.headers["x-cachemind-outcome"]


def test_each_tenant_finds_its_own_also_by_meaning(
    upstream: ScriptedUpstream, ring: KeyRing
) -> None:
    asked = "How do I parse nested JSON in Python without losing the order of its keys?"
    close = asked.replace("parse nested", "parse a nested")
    with served(upstream) as url, gateway(url, access=Access()) as world:
        ring.publish(world)
        wait_for_key(world, ring.texts[TENANTS[-1]])
        first, second, third = TENANTS[:3]
        assert outcome(ask(world, ring, first, asked)) == "miss"
        assert outcome(ask(world, ring, second, asked)) == "miss"
        for tenant in (first, second):
            assert outcome(ask(world, ring, tenant, close)) == "hit_semantic"
            assert outcome(ask(world, ring, tenant, asked)) == "hit_exact"
        # Who has nothing finds nothing, neither equal nor close.
        assert outcome(ask(world, ring, third, close)) == "miss"
        homes = {partition_of(tenant.encode(), PARTITIONS) for tenant in TENANTS}
        assert homes == set(range(PARTITIONS))


def test_each_namespace_is_sealed_under_its_own_keys(
    upstream: ScriptedUpstream, ring: KeyRing
) -> None:
    hosts = {
        tenant: KeyHost(MemoryDataKeys(), namespace=Namespace(tenant))
        for tenant in TENANTS[:2]
    }

    def payloads_of(namespace: Namespace) -> tuple[Payloads, HeldKeys | None]:
        host = hosts[namespace]
        return SealedPayloads(host.cipher), host.keys

    with (
        served(upstream) as url,
        gateway(url, access=Access(), payloads_of=payloads_of) as world,
    ):
        ring.publish(world)
        wait_for_key(world, ring.texts[TENANTS[0]])
        for tenant in TENANTS[:2]:
            assert outcome(ask(world, ring, tenant, "Why is the sky blue?")) == "miss"
        for tenant in TENANTS[:2]:
            found = outcome(ask(world, ring, tenant, "Why is the sky blue?"))
            assert found == "hit_exact"
            [stored] = [
                envelope.body
                for envelope in envelopes_of(world, tenant)
                if isinstance(envelope.body, Stored)
            ]
            assert is_sealed(stored.response)
            other = next(host for name, host in hosts.items() if name != tenant)
            with pytest.raises(PayloadUnreadable):
                SealedPayloads(other.cipher).opened(stored)


# ---- how many are open --------------------------------------------------------------


@pytest.fixture
def deps() -> Iterator[GatewayDeps]:
    log = MemoryLog(PARTITIONS, SystemClock())
    fold = Fold(log, Codec())
    nowhere = HttpUpstream("http://127.0.0.1:9", UpstreamTimeouts())
    yield replace(memory_deps(log, fold, nowhere, SETTINGS), access=Access())
    fold.close()


def few(deps: GatewayDeps, most_open: int) -> GatewayDeps:
    return replace(deps, settings=replace(deps.settings, most_open=most_open))


async def test_the_namespace_that_nobody_used_for_longest_is_closed(
    deps: GatewayDeps,
) -> None:
    shared = Shared(deps)
    spaces = Spaces(shared, few(deps, 3))
    opened = [await spaces.open(Namespace(tenant)) for tenant in TENANTS[:3]]
    assert spaces.find(Namespace(TENANTS[0])) is opened[0]  # used just now
    await spaces.open(Namespace(TENANTS[3]))
    names = [parts.namespace for parts in spaces.parts()]
    assert names == [TENANTS[2], TENANTS[0], TENANTS[3]]
    again = await spaces.open(Namespace(TENANTS[1]))
    assert again is not opened[1]
    assert len(spaces.parts()) == 3
    await spaces.close()


async def test_a_namespace_in_use_is_never_closed_under_its_requests(
    deps: GatewayDeps,
) -> None:
    spaces = Spaces(Shared(deps), few(deps, 2))
    opened = [await spaces.open(Namespace(tenant)) for tenant in TENANTS[:2]]
    for parts in opened:
        parts.users += 1
    with pytest.raises(TooManyOpen):
        await spaces.open(Namespace(TENANTS[2]))
    assert spaces.parts() == opened
    opened[0].users -= 1
    assert (await spaces.open(Namespace(TENANTS[2]))).namespace == TENANTS[2]
    await spaces.close()


async def test_many_who_ask_at_once_get_one_and_the_same(deps: GatewayDeps) -> None:
    spaces = Spaces(Shared(deps), few(deps, 4))
    wanted = [Namespace(tenant) for tenant in TENANTS[:4]] * 8
    found: list[Parts] = await asyncio.gather(*map(spaces.open, wanted))
    assert len({id(parts) for parts in found}) == 4
    assert all(p.namespace == name for p, name in zip(found, wanted, strict=True))
    assert len(spaces.parts()) == 4
    await spaces.close()


async def test_the_followers_of_a_partition_share_one_look_at_the_store(
    deps: GatewayDeps,
) -> None:
    spaces = Spaces(Shared(deps), deps)
    opened = [await spaces.open(Namespace(tenant)) for tenant in TENANTS]
    for parts in opened:
        assert parts.follower.state.namespace == parts.namespace
        assert await parts.follower.folded(Offset(-1), 1)
    threads = {id(parts.follower._line) for parts in opened}
    assert len(threads) == PARTITIONS
    await spaces.close()
    assert all(not parts.follower._line._tasks for parts in opened)


def test_a_worker_with_more_namespaces_than_it_takes_serves_them_in_turn(
    upstream: ScriptedUpstream, ring: KeyRing
) -> None:
    settings, access = changed(most_open=3), Access()
    with served(upstream) as url, gateway(url, settings, access=access) as world:
        ring.publish(world)
        wait_for_key(world, ring.texts[TENANTS[0]])
        for wanted in ("miss", "hit_exact"):
            for tenant in TENANTS:
                assert outcome(in_turn(world, ring, tenant)) == wanted


def in_turn(world: World, ring: KeyRing, tenant: str) -> httpx.Response:
    """Ask until there is room: a namespace stays while the fold lacks what it wrote."""
    found: list[httpx.Response] = []

    def answered() -> bool:
        found.append(ask(world, ring, tenant, "Why is the sky blue?"))
        return found[-1].status_code != 503

    wait_until(answered)
    return found[-1]
