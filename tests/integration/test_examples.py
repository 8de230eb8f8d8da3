"""The documented clients in other languages, run as they are shown."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cachemind_schemas.loader import current_of
from cachemind_services.broker import EmbeddedBroker
from cachemind_services.broker.distribution import default_cache_dir
from tests.integration.serving import run_cli, serving
from tests.upstreams import ScriptedUpstream, served

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]
FOLDER = Path(__file__).parents[2] / "schemas" / "examples" / "kafka"
QUESTION = 'How do I "reset" my password?'


@dataclass(frozen=True)
class Asked:
    """A running cache, and how often upstream was asked."""

    servers: str
    upstream: ScriptedUpstream

    def run(
        self, *argv: str | Path, question: str = QUESTION, more: Sequence[str] = ()
    ) -> str:
        """Ask by one of the clients; return what it prints."""
        done = self.ended(*argv, question=question, more=more)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ended(
        self, *argv: str | Path, question: str = QUESTION, more: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Ask by one of the clients; return how it ended."""
        return subprocess.run(
            [*argv, self.servers, "default", question, *more],
            capture_output=True,
            text=True,
            timeout=120,
        )


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    upstream, folder = ScriptedUpstream(), tmp_path_factory.mktemp("examples")
    with served(upstream) as url, serving(url, folder, "--encoder", "off"):
        servers = EmbeddedBroker(folder / "broker").status().bootstrap_servers
        assert servers is not None
        yield Asked(servers, upstream)


def jars() -> Sequence[Path]:
    """Return Kafka's own client, as the embedded broker has brought it."""
    folder = default_cache_dir() / "kafka"
    return sorted(folder.glob("*/kafka-clients-*.jar")) + sorted(
        folder.glob("*/slf4j-api-*.jar")
    )


def test_each_client_gets_the_answer_and_upstream_is_asked_once(asked: Asked) -> None:
    outcome, _, first = asked.run(sys.executable, FOLDER / "complete.py").partition(" ")
    assert outcome == "miss"
    content = json.loads(first)["choices"][0]["message"]["content"]
    assert "reset" in content
    again = asked.run(sys.executable, FOLDER / "complete.py")
    assert again.startswith("hit_exact ")
    answers = [again.partition(" ")[2]]
    if shutil.which("kcat"):
        answers.append(asked.run("sh", FOLDER / "complete.sh"))
    if shutil.which("javac"):
        classes = ":".join(map(str, jars()))
        shown = asked.run("java", "-cp", classes, FOLDER / "Complete.java")
        assert shown.startswith("hit_exact ")
        answers.append(shown.partition(" ")[2])
    for answer in answers:
        assert json.loads(answer)["choices"][0]["message"]["content"] == content
    assert len(asked.upstream.chats) == 1


def test_each_client_asks_by_a_grant(asked: Asked) -> None:
    for role in ("cache-writer", "auditor"):
        words = ("--namespace", "default", "--role", role)
        made = run_cli("grants", "create", *words, "--bootstrap-servers", asked.servers)
        assert made.returncode == 0, made.stderr
    by: dict[str, Any] = {"question": "By a grant?", "more": ("cache-writer",)}
    # The first answer has upstream's own bytes, with line ends and white space.
    if shutil.which("kcat"):
        first = asked.run("sh", FOLDER / "complete.sh", **by)
        assert "By a grant?" in json.loads(first)["choices"][0]["message"]["content"]
        done = asked.ended("sh", FOLDER / "complete.sh", more=("auditor",))
        assert done.returncode == 1
        assert "this caller lacks the right look_up" in done.stderr
    told = asked.run(sys.executable, FOLDER / "complete.py", **by)
    assert "By a grant?" in told
    told = asked.run(sys.executable, FOLDER / "complete.py", more=("auditor",))
    assert told.startswith("problem look_up ")
    if shutil.which("javac"):
        told = asked.run(
            *("java", "-cp", ":".join(map(str, jars())), FOLDER / "Complete.java"),
            **by,
        )
        assert told.startswith("hit_exact ")


@pytest.mark.parametrize("name", ["complete.py", "Complete.java"])
def test_the_clients_name_the_schema_that_this_build_writes(name: str) -> None:
    text = (FOLDER / name).read_text("utf-8")
    assert f"c301{current_of('commands').crc64.hex()}" in text


def test_the_shell_client_names_it_too() -> None:
    text = (FOLDER / "complete.sh").read_text("utf-8")
    header = b"\xc3\x01" + current_of("commands").crc64
    assert "".join(f"\\{byte:03o}" for byte in header) in text
