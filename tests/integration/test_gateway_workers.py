"""Several workers of one host: one upstream call for identical misses."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from cachemind.events import Stored
from cachemind.types import ExactKey, Offset
from cachemind_services.gateway.turns import Turns
from tests.gateways import World, another_worker, changed, gateway
from tests.upstreams import Gate, ScriptedUpstream, fails, served, wait_until

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Why?"}]}
ONE = ExactKey(b"\1" * 32)
TWO = ExactKey(b"\2" * 32)


@pytest.fixture
def upstream() -> ScriptedUpstream:
    return ScriptedUpstream()


@pytest.fixture
def workers(
    upstream: ScriptedUpstream, tmp_path: Path
) -> Iterator[tuple[World, list[str]]]:
    settings = changed(turns_file=tmp_path / "turns")
    with (
        served(upstream) as url,
        gateway(url, settings) as world,
        another_worker(world, url) as second,
    ):
        yield world, [world.url, second]


def ask_all(urls: list[str], times: int, body: Any) -> list[httpx.Response]:
    with ThreadPoolExecutor(times * len(urls)) as threads:
        found = [
            threads.submit(httpx.post, url + CHAT, json=body, timeout=20)
            for url in urls
            for _ in range(times)
        ]
        return [each.result() for each in found]


@pytest.mark.parametrize("stream", [False, True])
def test_identical_misses_of_two_workers_make_one_upstream_call(
    workers: tuple[World, list[str]], upstream: ScriptedUpstream, stream: bool
) -> None:
    world, urls = workers
    gate = Gate()
    upstream.behaviour = gate
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(ask_all, urls, 10, {**BODY, "stream": stream})
        wait_until(lambda: len(world.reads) == 20)
        gate.open()
        found = waiting.result()
    assert {each.status_code for each in found} == {200}
    assert len(upstream.chats) == 1
    assert len(world.of(Stored)) == 1


def test_a_failing_leader_elsewhere_leaves_each_worker_its_own_try(
    workers: tuple[World, list[str]], upstream: ScriptedUpstream
) -> None:
    upstream.behaviour = fails(500)
    found = ask_all(workers[1], 5, BODY)
    assert {each.status_code for each in found} == {500}


def test_an_answer_that_is_not_folded_yet_is_waited_for(
    workers: tuple[World, list[str]], upstream: ScriptedUpstream
) -> None:
    world, (first, second) = workers
    world.fold.pause()
    httpx.post(first + CHAT, json=BODY)
    threading.Timer(0.5, world.fold.resume).start()
    answer = httpx.post(second + CHAT, json=BODY)
    assert answer.headers["cache-status"].endswith("detail=joined")
    assert len(upstream.chats) == 1


def test_one_worker_sees_what_the_other_stored(
    workers: tuple[World, list[str]], upstream: ScriptedUpstream
) -> None:
    _, (first, second) = workers
    httpx.post(first + CHAT, json=BODY)

    def outcome() -> str:
        found: str = httpx.post(second + CHAT, json=BODY).headers["x-cachemind-outcome"]
        return found

    wait_until(lambda: outcome() == "hit_exact")


async def test_a_turn_is_one_workers_at_a_time(tmp_path: Path) -> None:
    mine, theirs = Turns(tmp_path / "turns"), Turns(tmp_path / "turns")
    async with mine.take(ONE, 5) as first:
        assert not first
        async with theirs.take(TWO, 5) as of_another_key:
            assert not of_another_key
        async with theirs.take(ONE, 0.03) as late:
            assert late
    async with theirs.take(ONE, 5) as waited:
        assert not waited
    mine.close()
    theirs.close()


async def test_a_turn_passes_on_when_it_ends(tmp_path: Path) -> None:
    mine, theirs = Turns(tmp_path / "turns"), Turns(tmp_path / "turns")
    ended = asyncio.Event()

    async def hold() -> None:
        async with mine.take(ONE, 5):
            await ended.wait()

    holding = asyncio.create_task(hold())
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(0.02, ended.set)
    async with theirs.take(ONE, 5) as waited:
        assert waited
        assert holding.done()
    mine.close()
    theirs.close()


async def test_a_turn_tells_where_the_answer_is(tmp_path: Path) -> None:
    mine, theirs = Turns(tmp_path / "turns"), Turns(tmp_path / "turns")
    assert theirs.stored_at(ONE) is None
    mine.stored(ONE, Offset(7))
    assert theirs.stored_at(ONE) == 7
    assert theirs.stored_at(TWO) is None
    same_slot = ExactKey(b"\3" * 28 + ONE[28:])
    mine.stored(same_slot, Offset(9))
    assert theirs.stored_at(ONE) is None
    mine.close()
    theirs.close()


async def test_a_dead_worker_holds_no_turn(tmp_path: Path) -> None:
    dead, alive = Turns(tmp_path / "turns"), Turns(tmp_path / "turns")
    taking = dead.take(ONE, 5)
    await taking.__aenter__()
    dead.close()
    async with alive.take(ONE, 5) as waited:
        assert not waited
    alive.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        await taking.__aexit__(None, None, None)
