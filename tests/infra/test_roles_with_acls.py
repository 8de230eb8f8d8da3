"""Each role at work with the rights that acls.json gives its account, and no others.

A real broker that asks who one is, the ACLs as the task `topics` applies them, and the
program's own processes, each under its role's name.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import pytest
from confluent_kafka import KafkaError, Producer

from cachemind_services.broker.sockets import free_port
from cachemind_services.metric_files import VARIABLE
from infra.terraform.container import tell_metrics
from tests.bench.running import wait_for
from tests.integration.requests_host import Client
from tests.integration.serving import eventually
from tests.secured_kafka import RULES, Properties, Secured, install, secured_broker
from tests.upstreams import ScriptedUpstream, served

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

ADMIN: Final = "topics"
ALARMED: Final = {
    "signer": {"cachemind_signer_lag_records", "cachemind_cuts_total"},
    "sink": {"cachemind_sink_lag_records"},
}
"""By role that nobody can ask for metrics: those that are always told."""

KEY: Final = ("--role=cache-writer", "--namespace=default", "--name=shop")
PARTITIONS: Final = 2
READY_S: Final = 120.0
WAIT_S: Final = 20.0


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    with secured_broker(folder, users=list(RULES), admins=[ADMIN]) as found:
        yield found


@dataclass(frozen=True)
class Installation:
    """A log with its rules, and how the roles' processes are started on it."""

    secured: Secured
    prefix: str
    folder: Path
    upstream: str
    port: int

    def kafka(self, role: str) -> Properties:
        return self.secured.login(role)

    def environ(self, role: str) -> dict[str, str]:
        # A collector sweeps what the materializer of the gateway's host has folded.
        task = self.folder / ("gateway" if role == "collector" else role)
        task.mkdir(exist_ok=True)
        return {
            **{k: v for k, v in os.environ.items() if not k.startswith("CACHEMIND_")},
            "CACHEMIND_AUDIT_MODE": "true",
            "CACHEMIND_COLLECT_GRACE_S": "1",
            "CACHEMIND_COLLECT_INTERVAL_S": "1",
            "CACHEMIND_DATA_DIR": str(task),
            "CACHEMIND_ENCODER": "off",
            "CACHEMIND_PARTITIONS": str(PARTITIONS),
            "CACHEMIND_PORT": str(self.port),
            "CACHEMIND_SINK_DIR": str(self.folder / "sealed"),
            "CACHEMIND_SINK_FILE_S": "1",
            "CACHEMIND_SNAPSHOT_URL": str(self.folder / "snapshots"),
            "CACHEMIND_TOPIC_PREFIX": self.prefix,
            "CACHEMIND_UPSTREAM": self.upstream,
            **self.secured.settings(role),
            **self._counting(role),
            **({} if role == "gateway" else {"CACHEMIND_LOG_DIR": self.log_dir}),
        }

    def metrics(self, role: str) -> Path:
        return self.folder / role / "metrics"

    def _counting(self, role: str) -> dict[str, str]:
        if role not in ALARMED:
            return {}
        self.metrics(role).mkdir(exist_ok=True)
        return {VARIABLE: str(self.metrics(role))}

    @property
    def log_dir(self) -> str:
        return str(self.folder / "audit")

    def run(self, role: str, *words: str) -> str:
        """Run a command in a role's name; return what it printed."""
        done = subprocess.run(
            self._argv(words),
            env=self.environ(role),
            capture_output=True,
            text=True,
            timeout=READY_S,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        # What may fail without being fatal is only said.
        assert "AUTHORIZATION" not in done.stderr.upper(), (words, done.stderr)
        return done.stdout

    def start(self, role: str, command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._argv([command]), env=self.environ(role))

    def _argv(self, words: list[str] | tuple[str, ...]) -> list[str]:
        return [str(Path(sys.executable).with_name("cachemind")), *words]

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@pytest.fixture
def installation(
    secured: Secured, topic_prefix: str, tmp_path: Path
) -> Iterator[Installation]:
    install(secured.login(ADMIN), topic_prefix, PARTITIONS)
    with served(ScriptedUpstream()) as upstream:
        yield Installation(
            secured=secured,
            prefix=topic_prefix,
            folder=tmp_path,
            upstream=upstream,
            port=free_port(),
        )


PROCESSES: Final = (
    ("gateway", "materializer"),
    ("gateway", "receipts"),
    ("gateway", "requests"),
    ("gateway", "gateway"),
    ("signer", "signer"),
    ("sink", "sink"),
    ("collector", "collector"),
)


def test_every_role_does_its_work_with_its_own_rights(
    installation: Installation,
) -> None:
    here = installation
    here.run("ceremony", "audit", "keys", "init")
    with ExitStack() as stops:
        running = {}
        for role, command in PROCESSES:
            running[command] = here.start(role, command)
            stops.callback(running[command].wait, WAIT_S)
            stops.callback(running[command].terminate)
        wait_for(here.url("/readyz"), READY_S)

        # The gateway, its materializer, and the index of receipts beside them.
        first = chat(here, "one")
        assert first["x-cachemind-outcome"] == "miss"
        eventually(lambda: chat(here, "one")["x-cachemind-outcome"] == "hit_exact")
        trace = first["x-cachemind-trace"]
        eventually(lambda: receipt_is_there(here, trace), READY_S)

        # The collector, beside them.
        chat(here, "soon over", ttl="1s")
        eventually(lambda: "evicted" in kinds(here), READY_S)

        # Snapshots, a rollback to one (a transaction of the operator), a replay.
        here.run("gateway", "snapshot", "create", "--name", "before", "--ship")
        assert chat(here, "two")["x-cachemind-outcome"] == "miss"
        here.run("gateway", "rollback", "--to-snapshot", "before", "--reason", "test")
        here.run("gateway", "replay", "--to-version", "1", "export")
        here.run("gateway", "keys", "create", *KEY)

        # Kafka-native clients: a command, its answer in one transaction.
        with closing(Client(here.secured.plain, here.prefix, "default")) as client:
            answer = client.ask(to_version=1, dry_run=True, reason="test")
        assert answer.kind != "Refused", answer

        # The sink seals; the auditor reads topics and nothing else.
        sealed = here.folder / "sealed"
        eventually(lambda: any(sealed.rglob("*.json")), READY_S)
        keys = str(here.folder / "audit" / "keys.json")
        here.run("auditor", "audit", "verify", "--keys", keys, "--against-wal")
        here.run("ceremony", "audit", "keys", "list")

        # What tells CloudWatch finds in their files what alarms and scaling stand on.
        eventually(lambda: counted(here, "signer") >= ALARMED["signer"])
        eventually(lambda: counted(here, "sink") >= ALARMED["sink"])
        assert [name for name, one in running.items() if one.poll() is not None] == []


def counted(here: Installation, role: str) -> set[str]:
    gauges, counters = tell_metrics.read(here.metrics(role))
    return gauges.keys() | counters.keys()


def kinds(here: Installation) -> set[str]:
    """Return what made the versions that there are."""
    found = httpx.get(here.url("/v1/versions"), timeout=30).raise_for_status().json()
    return {row["kind"] for row in found["versions"]}


def chat(here: Installation, text: str, ttl: str = "1h") -> Mapping[str, str]:
    question = {
        "model": "m",
        "temperature": 0,
        "messages": [{"role": "user", "content": text}],
    }
    url = here.url("/v1/chat/completions")
    answer = httpx.post(
        url, json=question, headers={"x-cachemind-ttl": ttl}, timeout=30
    )
    return answer.raise_for_status().headers


def receipt_is_there(here: Installation, trace: str) -> bool:
    return httpx.get(here.url(f"/v1/receipts/{trace}"), timeout=30).status_code == 200


@pytest.mark.parametrize(
    ("role", "topic"),
    [
        ("gateway", "audit"),
        ("gateway", "audit.cuts"),
        ("gateway", "requests"),
        ("signer", "wal"),
        ("sink", "audit"),
        ("sink", "wal"),
        ("collector", "audit"),
        ("collector", "requests"),
        ("collector", "snapshots"),
        ("auditor", "wal"),
        ("auditor", "audit"),
        ("ceremony", "audit.cuts"),
    ],
)
def test_a_role_may_not_write_what_is_anothers(
    installation: Installation, role: str, topic: str
) -> None:
    # Without idempotence, whose own right would be asked for first.
    producer = Producer({**installation.kafka(role), "enable.idempotence": False})
    codes: list[int] = []
    producer.produce(
        f"{installation.prefix}.{topic}",
        b"v",
        on_delivery=lambda error, _: codes.append(error.code() if error else 0),
    )
    assert producer.flush(WAIT_S) == 0
    assert codes == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
