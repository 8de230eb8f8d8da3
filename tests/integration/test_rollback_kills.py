"""kill -9 of every role while a rollback goes on: done whole, or not begun."""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.integration.rollback_host import Shop
from tests.integration.serving import Serving, eventually, run_cli, serving
from tests.upstreams import ScriptedUpstream, served

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

ROLES = ("materializer", "materializer", "gateway-worker", "gateway-worker", "broker")


def kill(host: Serving, role: str) -> None:
    """SIGKILL a process of that role, or the Java process of the broker."""
    if role == "broker":
        host.kill_kafka(host.pid_of(role))
    else:
        host.kill(role)


def crash_in_rollback(host: Serving, shop: Shop, chance: random.Random) -> None:
    """Ask for a rollback and kill something meanwhile."""
    target = chance.randrange(shop.head())
    query = {"to_version": target}
    asking = threading.Thread(target=ask, args=(shop.url, query))
    asking.start()
    time.sleep(chance.uniform(0, 0.15))
    kill(host, chance.choice(ROLES))
    asking.join()
    eventually(lambda: all(map(host.runs, set(ROLES))), 90)
    host.wait_ready()


def ask(url: str, query: dict[str, int]) -> None:
    with suppress(httpx.TransportError):
        httpx.post(f"{url}/v1/rollback", params=query, timeout=60)


def check(shop: Shop) -> int:
    """Hold every rollback against its target; return how many there are."""
    found = shop.client.get(f"{shop.url}/v1/versions", params={"first": 1}).json()
    rows = found["versions"]
    assert found["quarantine"] is None
    assert [row["version"] for row in rows] == list(range(1, found["head"] + 1))
    digests = {0: "0" * 64} | {row["version"]: row["digest"] for row in rows}
    rollbacks = [row for row in rows if row["target"] is not None]
    for row in rollbacks:
        assert row["digest"] == digests[row["target"]], row
    return len(rollbacks)


def live_digest_is_the_heads(shop: Shop) -> bool:
    stats = shop.stats()
    return bool(stats["digest"] == shop.digest(stats["version"]))


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(4, id="four"),
        pytest.param(
            100, id="hundred", marks=[pytest.mark.slow, pytest.mark.timeout(3000)]
        ),
    ],
)
def test_whatever_dies_when_a_rollback_ends_whole_or_has_not_begun(
    rounds: int, tmp_path: Path
) -> None:
    chance = random.Random(rounds)
    with (
        served(ScriptedUpstream()) as upstream,
        serving(upstream, tmp_path / "data", "--encoder", "off") as host,
        Shop(host.url, httpx.Client(timeout=60, transport=retrying())) as shop,
    ):
        for number in range(40):
            shop.put(f"question {number % 20}", f"answer {number}")
        shop.settle(40)
        done, number = 0, 0
        # On a slow machine more of them die before they are on the log at all.
        while number < rounds or not worth_it(done, number):
            assert number < 3 * rounds, f"{done} rollbacks of {number} got through"
            crash_in_rollback(host, shop, chance)
            done = check(shop)
            eventually(lambda: live_digest_is_the_heads(shop), 60)
            eventually(lambda: wrote(shop, number), 60)  # noqa: B023 - called at once
            number += 1
        rebuilt = run_cli("doctor", "--rebuild", f"--data-dir={host.data_dir}")
        assert rebuilt.returncode == 0, rebuilt.stdout


def wrote(shop: Shop, number: int) -> bool:
    """Return whether a write got through; the log may just be coming back."""
    try:
        shop.put(f"question {number % 20}", f"later {number}")
    except AssertionError:
        return False
    return True


def retrying() -> httpx.HTTPTransport:
    """Return a transport for a client whose server is killed now and then."""
    return httpx.HTTPTransport(
        retries=3, limits=httpx.Limits(max_keepalive_connections=0)
    )


def worth_it(rollbacks: int, rounds: int) -> bool:
    """Return whether enough rollbacks got through for the rounds to say something."""
    return rollbacks * 3 >= rounds
