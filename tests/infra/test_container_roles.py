"""The compose file's profile `roles`, started as it says, without containers.

Each service is the process that its container would become: start.py with the
service's command and variables, a folder for each volume. Addresses alone are others.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from cachemind_services.broker import EmbeddedBroker
from tests.bench.running import free_port, wait_for
from tests.infra.containerfile import CONTAINER, INSIDE
from tests.infra.test_container_compose import HOME, LAST, ROLES
from tests.integration.serving import eventually
from tests.upstreams import ScriptedUpstream, served

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

READY_S: Final = 120.0
STOP_S: Final = 20.0
"""What the compose file gives them."""

BIN: Final = Path(sys.executable).parent
QUESTION: Final = {
    "model": "m",
    "temperature": 0,
    "messages": [{"role": "user", "content": "What is in a container?"}],
}


@dataclass(frozen=True)
class Place:
    """Where things are here: what the compose file's words are replaced by."""

    volumes: Path
    servers: str
    upstream: str
    port: int
    topic_prefix: str

    def environ(self, service: Mapping[str, Any]) -> dict[str, str]:
        """Return the variables of a service's process."""
        named = {**LAST.environment(), **service["environment"]}
        # A test has its own model server, and needs no hits by meaning.
        own = {
            "CACHEMIND_ENCODER": "off",
            "CACHEMIND_HOST": "127.0.0.1",
            "CACHEMIND_PORT": str(self.port),
            "CACHEMIND_SINK_FILE_S": "1",
            "CACHEMIND_TOPIC_PREFIX": self.topic_prefix,
            "CACHEMIND_KAFKA_BOOTSTRAP_SERVERS": self.servers,
            "PATH": f"{BIN}:{os.environ['PATH']}",
        }
        if "CACHEMIND_UPSTREAM" in named:
            own["CACHEMIND_UPSTREAM"] = self.upstream
        home = str(self.home(service))
        return {k: v.replace(HOME, home) for k, v in named.items()} | own

    def home(self, service: Mapping[str, Any]) -> Path:
        """Return the folder of the service's one volume."""
        [volume] = service["volumes"]
        return self.volumes / str(volume).partition(":")[0]

    def run(
        self, service: Mapping[str, Any], argv: Sequence[str]
    ) -> subprocess.Popen[bytes]:
        """Start what a container of `service` would run."""
        words = [word.replace(INSIDE, f"{CONTAINER}/") for word in argv]
        return subprocess.Popen(
            words, cwd=self.home(service), env=self.environ(service)
        )

    def is_healthy(self, name: str) -> bool:
        """Return what the service's health check says."""
        _, *argv = ROLES[name]["healthcheck"]["test"]
        return self.run(ROLES[name], argv).wait(READY_S) == 0


@pytest.fixture
def place(broker: EmbeddedBroker, topic_prefix: str, tmp_path: Path) -> Iterator[Place]:
    for service in ROLES.values():
        (tmp_path / service["volumes"][0].partition(":")[0]).mkdir(exist_ok=True)
    with served(ScriptedUpstream()) as upstream:
        yield Place(
            volumes=tmp_path,
            servers=str(broker.bootstrap_servers),
            upstream=upstream,
            port=free_port(),
            topic_prefix=topic_prefix,
        )


@contextmanager
def started(place: Place) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Run every role, each after what it waits for; stop them all at the end."""
    running: dict[str, subprocess.Popen[bytes]] = {}
    entry = LAST.last("ENTRYPOINT").words()
    with ExitStack() as stops:
        while len(running) < len(ROLES):
            for name, service in ROLES.items():
                waits = set(service["depends_on"]) & ROLES.keys()
                if name in running or not waits <= running.keys():
                    continue
                running[name] = place.run(service, [*entry, *service["command"]])
                stops.callback(running[name].kill)
                if "test" in service["healthcheck"]:
                    eventually(partial(place.is_healthy, name), READY_S)
        yield running


def chat(place: Place) -> dict[str, str]:
    """Ask the gateway; return the header of its answer."""
    url = f"http://127.0.0.1:{place.port}/v1/chat/completions"
    answer = httpx.post(url, json=QUESTION, timeout=30).raise_for_status()
    return dict(answer.headers)


def receipt_is_there(place: Place, trace: str) -> bool:
    url = f"http://127.0.0.1:{place.port}/v1/receipts/{trace}"
    status = httpx.get(url, timeout=30).status_code
    # Not covered by a cut yet; or the index is not there yet.
    assert status in (200, 404, 503)
    return status == 200


def test_the_roles_work_together_as_they_are_shared_out(place: Place) -> None:
    with started(place) as running:
        wait_for(f"http://127.0.0.1:{place.port}/readyz", READY_S)
        first = chat(place)
        assert first["x-cachemind-outcome"] == "miss"
        assert chat(place)["x-cachemind-outcome"] == "hit_exact"
        # Signed by one, indexed by another, on the gateway's volume.
        trace = first["x-cachemind-trace"]
        eventually(lambda: receipt_is_there(place, trace), READY_S)
        sealed = place.home(ROLES["sink"]) / "sealed"
        eventually(lambda: any(sealed.rglob("*.json")), READY_S)
        metrics = httpx.get(f"http://127.0.0.1:{place.port}/metrics", timeout=30)
        assert "cachemind_fold_events" in metrics.text  # the materializer's
        assert [name for name, one in running.items() if one.poll() is not None] == []
        for process in running.values():
            process.terminate()
        codes = {name: one.wait(STOP_S) for name, one in running.items()}
        assert codes == dict.fromkeys(ROLES, 0)
