"""Versions that neither a checkpoint nor the log leads to any more, on real Kafka."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.rollback_host import Shop, cli
from tests.integration.serving import Serving, eventually, run_cli, serving
from tests.upstreams import ScriptedUpstream, served

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

KEPT, HEAD = 30, 40


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("horizon")
    with (
        served(ScriptedUpstream()) as upstream,
        serving(upstream, folder / "data", "--encoder", "off") as running,
    ):
        yield running


@pytest.fixture(scope="module")
def shop(host: Serving) -> Iterator[Shop]:
    """40 versions, a snapshot at 30, and the log deleted below it."""
    with Shop(host.url) as shop:
        for number in range(HEAD):
            if number == KEPT:
                shop.settle(KEPT)
                operate(host, "snapshot", "create", "--name", "kept")
            shop.put(f"question {number % 25}", f"answer {number}")
        shop.settle(HEAD)
        assert operate(host, "wal", "truncate", "--yes").stdout
        yield shop


def operate(host: Serving, *words: str) -> subprocess.CompletedProcess[str]:
    """Run an operator's command on the host, and check that it worked."""
    done = run_cli(*words, f"--data-dir={host.data_dir}")
    assert done.returncode == 0, done.stderr
    return done


def refused(answer: httpx.Response) -> tuple[int, str, str]:
    error = answer.json()["error"]
    return answer.status_code, error["param"], error["code"]


def test_a_rollback_past_the_horizon_is_gone_and_changes_nothing(shop: Shop) -> None:
    for query in ({}, {"dry_run": 1}, {"expected_head": shop.head()}):
        answer = shop.rollback(to_version=20, **query)
        assert refused(answer) == (410, "to_version", "past_the_horizon"), query
    message = answer.json()["error"]["message"]
    assert "is 20" in message
    assert f"begins at version {KEPT}" in message
    assert shop.head() == HEAD
    between = shop.client.get(shop.url + "/v1/diff", params={"from": 20, "to": 35})
    assert refused(between) == (410, "from", "past_the_horizon")


def test_the_command_line_says_so_and_fails(host: Serving, shop: Shop) -> None:
    done = cli(host, "rollback", "--to-version=20")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "410: to_version: is 20" in done.stderr
    assert f"begins at version {KEPT}" in done.stderr
    as_of = run_cli("replay", "--to-version=20", f"--data-dir={host.data_dir}")
    assert as_of.returncode != 0
    assert f"the log begins at {KEPT}, and no snapshot" in as_of.stderr


def test_the_oldest_version_that_is_kept_can_be_rolled_back_to(
    host: Serving, shop: Shop
) -> None:
    for target in (KEPT + 2, KEPT):
        done = cli(host, "rollback", f"--to-version={target}", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["digest"] == shop.digest(target)
    emptied = shop.rollback(to_version=0)
    assert emptied.status_code == 200, emptied.text
    assert emptied.json()["removed"] == 25


def test_history_that_nothing_leads_back_to_is_given_up(tmp_path: Path) -> None:
    flags = ("--encoder", "off", "--checkpoint-events", "10")
    with (
        served(ScriptedUpstream()) as upstream,
        serving(upstream, tmp_path / "data", *flags) as host,
        Shop(host.url) as shop,
    ):
        for number in range(HEAD):
            if number == KEPT:
                shop.settle(KEPT)
                operate(host, "snapshot", "create", "--name", "kept")
            shop.put(f"question {number % 25}", f"answer {number}")
        shop.settle(HEAD)
        bad = shop.rollback(to_version=5).json()["rollback_id"]
        forth = shop.rollback(undo=bad).json()
        operate(host, "wal", "truncate", "--yes")
        for number in range(HEAD):
            shop.put(f"later {number}", "answer")
        eventually(lambda: oldest(shop) == 6, 30)  # what undoing the undo may need
        assert refused(shop.rollback(to_version=3)) == (
            410,
            "to_version",
            "past_the_horizon",
        )
        assert shop.rollback(to_version=forth["version"]).status_code == 200
        done = shop.rollback(to_version=KEPT)
        assert done.status_code == 200, done.text
        assert done.json()["digest"] == shop.digest(KEPT)
        operate(host, "doctor")
        emptied = shop.rollback(to_version=0)
        assert (emptied.status_code, emptied.json()["removed"]) == (200, 25)
        operate(host, "doctor")


def oldest(shop: Shop) -> int:
    """Return the oldest version that history shows."""
    found = shop.client.get(shop.url + "/v1/versions", params={"first": 1}).json()
    first: int = found["versions"][0]["version"]
    return first
