"""An encrypted namespace on the real Kafka: nothing readable on disk, and erased."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from cachemind.types import Namespace
from cachemind_services.bootstrap.erasure import erase_namespace
from cachemind_services.settings import load
from tests.integration.serving import Serving, eventually, run_cli, serving
from tests.upstreams import ScriptedUpstream, served

pytestmark = [pytest.mark.broker, pytest.mark.slow]

MARKER = "zebrafinch"
SHOP = "shop"
ENTRIES = 5
BOUND_S = 6.0
"""Past a look at the store of keys, 5 s apart."""


@dataclass(frozen=True)
class Host:
    """A host with two workers in audit mode; `folders` are all that it writes to."""

    serving: Serving
    log_dir: Path
    snapshots: Path
    key: Path

    @property
    def url(self) -> str:
        return self.serving.url

    @property
    def folders(self) -> Sequence[Path]:
        return self.serving.data_dir, self.log_dir, self.snapshots

    @property
    def flags(self) -> tuple[str, ...]:
        data = f"--data-dir={self.serving.data_dir}"
        return (data, "--namespace", SHOP)

    @property
    def keys(self) -> Path:
        return self.serving.data_dir / "data-keys" / SHOP

    def ask(self, number: int, **more: Any) -> Any:
        """Return the raw answer of the real client, on a connection of its own."""
        with OpenAI(base_url=self.url + "/v1", api_key="sk-a", max_retries=0) as client:
            return client.chat.completions.with_raw_response.create(
                model="m",
                messages=[{"role": "user", "content": question(number)}],
                user=f"user-{MARKER}",
                **more,
            )

    def cached(self, number: int) -> bool:
        """Return whether an answer is there, without asking upstream for it."""
        body = {
            "model": "m",
            "messages": [{"role": "user", "content": question(number)}],
            "user": f"user-{MARKER}",
        }
        headers = {"cache-control": "only-if-cached", "authorization": "Bearer sk-a"}
        answer = httpx.post(
            f"{self.url}/v1/chat/completions", json=body, headers=headers, timeout=20
        )
        assert answer.status_code in (200, 504), answer.text
        return answer.status_code == 200

    def everywhere(self, *, cached: bool) -> bool:
        """Return whether both workers, asked often, say the same of every entry."""
        found = [self.cached(number) for _ in range(6) for number in range(ENTRIES)]
        return all(each is cached for each in found)

    def run(self, *arguments: str) -> Any:
        """Return what a command printed as JSON."""
        done = run_cli(*arguments, "--json", *self.flags)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def version(self) -> int:
        """Return the namespace's version."""
        found: int = self.serving.get("/v1/cachemind/stats")["version"]
        return found

    def audited(self) -> None:
        """Demand that the audit log holds, against the WAL too."""
        broker = self.serving.data_dir / "broker"
        told = run_cli("broker", "status", "--data-dir", str(broker), "--json")
        kafka = json.loads(told.stdout)["bootstrap_servers"]
        keys = str(self.log_dir / "keys.json")
        done = run_cli(
            "audit",
            "verify",
            f"--bootstrap-servers={kafka}",
            "--keys",
            keys,
            "--against-wal",
        )
        assert done.returncode == 0, done.stdout + done.stderr


def question(number: int) -> str:
    return f"What does the {MARKER} of house number {number} sing in the morning?"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    key, log_dir, snapshots = (tmp_path / n for n in ("key", "audit", "snapshots"))
    key.write_text(os.urandom(32).hex())
    key.chmod(0o600)
    flags = ("--audit-mode", "--log-dir", str(log_dir), "--workers", "2")
    more = ("--payload-key", f"file:{key}", "--namespace", SHOP, "--encoder", "off")
    # A machine that is busy with other tests takes its time.
    patient = ("--wal-timeout-ms", "30000", "--checkpoint-events", "5")
    with (
        served(ScriptedUpstream()) as upstream,
        serving(upstream, tmp_path / "data", *flags, *more, *patient) as running,
    ):
        yield Host(running, log_dir, snapshots, key)


def filled(host: Host) -> None:
    for number in range(ENTRIES):
        answer = host.ask(number, stream=bool(number % 2))
        assert answer.headers["x-cachemind-outcome"] == "miss"
    eventually(lambda: host.everywhere(cached=True))


def holding(folders: Sequence[Path], *words: str) -> list[Path]:
    """Return the files that hold one of the words."""
    found = []
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file():
                content = path.read_bytes()
                if any(word.encode() in content for word in words):
                    found.append(path)
    return found


def test_no_file_holds_what_was_asked_or_answered(host: Host, tmp_path: Path) -> None:
    filled(host)
    host.run("snapshot", "create", "--name", "one")
    host.run("snapshot", "ship", f"--to={host.snapshots}")
    host.run("replay", "--to-version", str(ENTRIES))
    assert host.serving.stop() == 0
    assert any(host.snapshots.rglob("*"))
    assert holding(host.folders, MARKER, "long enough to be streamed") == []
    # The same without encryption: the search would have found it.
    with (
        served(ScriptedUpstream()) as upstream,
        serving(
            upstream, tmp_path / "plain", "--encoder", "off", "--namespace", SHOP
        ) as running,
    ):
        filled(Host(running, host.log_dir, host.snapshots, host.key))
        assert running.stop() == 0
    plain = holding((tmp_path / "plain",), MARKER)
    assert {path.relative_to(tmp_path / "plain").parts[0] for path in plain} >= {
        "broker",
        "store",
    }


def test_what_was_erased_is_gone_for_everyone_and_the_chain_verifies(
    host: Host,
) -> None:
    filled(host)
    before = host.version()
    done = host.run("erase", "--reason", "contract ended")
    eventually(lambda: host.everywhere(cached=False), BOUND_S)
    [shredded] = done["shredded"]
    assert done["principal"].startswith("operator/")
    # The next key may be there already.
    stone = host.keys / "00000001.json"
    assert json.loads(stone.read_bytes())["wrapped"] == ""

    rows = host.serving.get("/v1/versions")["versions"]
    told = [row for row in rows if row["kind"] == "key_shredded"]
    assert [(row["lsn"], row["principal"], row["reason"]) for row in told] == [
        (shredded["lsn"], done["principal"], "contract ended")
    ]

    # Taken back by a rollback, the entries are there and stay unreadable.
    rolled = host.run("rollback", "--to-version", str(before), f"--url={host.url}")
    assert rolled["restored"] == ENTRIES
    assert host.everywhere(cached=False)
    query = ("replay", "--to-version", str(before), f"--payload-key=file:{host.key}")
    asked = run_cli(*query, "query", question(0), "--model", "m", *host.flags)
    assert asked.returncode == 1, asked.stdout

    again = host.ask(0)
    assert again.headers["x-cachemind-outcome"] == "miss"
    assert "payload-no-key" in again.headers["cache-status"]
    eventually(lambda: host.cached(0))
    newer = sorted(path.name for path in host.keys.iterdir())
    assert newer == ["00000001.json", "00000002.json"]
    host.audited()

    second = host.run("erase")
    assert len(second["shredded"]) == 1
    assert second["gone_before"] == [shredded["key_id"]]
    eventually(lambda: host.everywhere(cached=False), BOUND_S)


class Cut(Exception):
    """The command is killed here."""


def test_cut_off_at_each_step_the_next_run_erases(host: Host) -> None:
    settings = load({}, flags={"data_dir": str(host.serving.data_dir)})
    for number, step in enumerate(("before-invalidated", "invalidated", "shredded")):
        host.ask(number)
        eventually(lambda number=number: host.cached(number))  # type: ignore[misc]  # mypy infers no type for a default

        def cut(told: str, step: str = step) -> None:
            if told == step:
                raise Cut

        with pytest.raises(Cut):
            erase_namespace(settings, Namespace(SHOP), "cut", cut)
        wanted = step == "before-invalidated"
        eventually(lambda wanted=wanted, n=number: host.cached(n) is wanted, BOUND_S)  # type: ignore[misc]  # mypy infers no type for a default
        host.run("erase")
        eventually(lambda number=number: not host.cached(number), BOUND_S)  # type: ignore[misc]  # mypy infers no type for a default
    repeated = host.run("erase")
    assert all(json.loads(path.read_bytes())["key_id"] for path in host.keys.iterdir())
    assert not holding(host.folders, MARKER)
    assert len(repeated["gone_before"]) >= 3


def test_an_erasure_says_what_cannot_be_erased_and_what_is_missing(
    host: Host,
) -> None:
    data = f"--data-dir={host.serving.data_dir}"
    unnamed = run_cli("erase", data)
    assert (unnamed.returncode, "--namespace" in unnamed.stderr) == (2, True)
    plain = run_cli("erase", data, "--namespace", "never-encrypted")
    assert plain.returncode == 1
    assert "nothing of it is encrypted" in plain.stderr
    kafka = run_cli("erase", "--namespace", SHOP, "--bootstrap-servers=127.0.0.1:1")
    assert (kafka.returncode, "DATA_KEYS_URL" in kafka.stderr) == (2, True)
