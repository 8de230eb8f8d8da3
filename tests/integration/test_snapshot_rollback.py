"""A named snapshot of two namespaces, and both taken back to it at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.rollback_host import NAMESPACE, Shop, neighbour, second_gateway
from tests.integration.serving import Serving, run_cli, serving
from tests.upstreams import ScriptedUpstream, served

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

POISON = "poison"


@dataclass(frozen=True)
class Two:
    """Two gateways on one host, each with a namespace of its own."""

    host: Serving
    shops: tuple[Shop, Shop]

    def put(self, answer: str) -> None:
        for shop in self.shops:
            shop.put("question", answer)
            shop.settle(shop.head())

    def answers(self) -> list[str]:
        return [shop.ask("question")[1] for shop in self.shops]

    def cli(self, *words: str, code: int = 0) -> str:
        done = run_cli(*words, f"--data-dir={self.host.data_dir}")
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def rollbacks(self) -> list[str]:
        shown = self.cli("tail", "--json", "--no-follow", "--from-beginning")
        events = [json.loads(line) for line in shown.splitlines() if line[0] == "{"]
        return [e["namespace"] for e in events if e["kind"] == "RolledBack"]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    folder: Path = tmp_path_factory.mktemp("snapshot-rollback") / "data"
    with (
        served(ScriptedUpstream()) as url,
        serving(url, folder, "--encoder", "off") as host,
        Shop(host.url) as shop,
        second_gateway(host, url, neighbour()) as other,
    ):
        two = Two(host, (shop, other))
        two.put("good")
        two.cli("snapshot", "create", "--name=v1.2.0")
        two.put(POISON)
        yield two


def test_all_namespaces_of_a_snapshot_go_back_with_one_transaction(two: Two) -> None:
    assert two.answers() == [POISON, POISON]
    dry = two.cli("rollback", "--to-snapshot=v1.2.0", "--dry-run")
    assert dry.count("0 restored, 0 removed, 1 changed") == 2
    assert two.answers() == [POISON, POISON]
    assert two.rollbacks() == []
    done = two.cli("rollback", "--to-snapshot=v1.2.0", "--reason=both")
    assert done.count("0 restored, 0 removed, 1 changed") == 2
    assert two.answers() == ["good", "good"]
    assert sorted(two.rollbacks()) == sorted([NAMESPACE, neighbour()])


def test_a_gateway_takes_only_its_own_namespace_back(two: Two) -> None:
    two.put(POISON)
    refused = two.shops[0].rollback(to_snapshot="v1.2.0")
    assert refused.status_code == 403
    assert refused.json()["error"]["param"] == "to_snapshot"
    assert neighbour() in refused.json()["error"]["message"]
    done = two.shops[0].rollback(to_snapshot="v1.2.0", namespace=NAMESPACE)
    assert done.status_code == 200, done.text
    assert two.answers() == ["good", POISON]


def test_an_unknown_snapshot_is_refused_before_anything_is_appended(two: Two) -> None:
    before = two.rollbacks()
    assert "no snapshot v9" in two.cli("rollback", "--to-snapshot=v9", code=2)
    assert two.rollbacks() == before
