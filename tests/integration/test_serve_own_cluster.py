"""`cachemind serve` before a cluster of the operator's own: TLS and a password."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from cachemind_services.broker import EmbeddedBroker, storage
from cachemind_services.broker.server_config import Ports, server_properties
from cachemind_services.broker.sockets import free_port
from tests.integration import certificates
from tests.integration.serving import eventually, run_cli, serving
from tests.upstreams import ScriptedUpstream, served

pytestmark = pytest.mark.broker

SECRET = "correct-horse-battery"


@dataclass(frozen=True)
class Cluster:
    servers: str
    authority: Path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker with a listener that speaks TLS and asks for a password."""
    folder = tmp_path_factory.mktemp("tls")
    authority, server = certificates.write(folder)
    port = free_port()

    def secured(log_dir: Path, ports: Ports) -> str:
        plain = f"PLAINTEXT://127.0.0.1:{ports.broker}"
        controller = f"CONTROLLER://127.0.0.1:{ports.controller}"
        client = f"CLIENT://localhost:{port}"
        return server_properties(log_dir, ports) + (
            f"listeners={plain},{controller},CLIENT://127.0.0.1:{port}\n"
            f"advertised.listeners={plain},{client}\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT,CLIENT:SASL_SSL\n"
            "inter.broker.listener.name=PLAINTEXT\n"
            "listener.name.client.ssl.keystore.type=PEM\n"
            f"listener.name.client.ssl.keystore.location={server}\n"
            "listener.name.client.sasl.enabled.mechanisms=PLAIN\n"
            "listener.name.client.plain.sasl.jaas.config="
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'user_alice="{SECRET}";\n'
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "server_properties", secured)
        with EmbeddedBroker(tmp_path_factory.mktemp("cluster")):
            yield Cluster(f"localhost:{port}", authority)


@pytest.fixture
def login(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Set what the client needs, half by variables, half by the file returned."""
    monkeypatch.setenv("CACHEMIND_KAFKA_SASL_MECHANISM", "PLAIN")
    monkeypatch.setenv("CACHEMIND_KAFKA_SASL_PASSWORD", SECRET)
    config = tmp_path / "cachemind.toml"
    config.write_text(
        f'[kafka]\nbootstrap.servers = "{cluster.servers}"\n'
        f'security.protocol = "SASL_SSL"\nsasl.username = "alice"\n'
        f'ssl.ca.location = "{cluster.authority}"\n'
    )
    return config


def test_it_serves_folds_and_is_verified_over_tls_with_a_password(
    login: Path, tmp_path: Path
) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Is it secret?"}]}
    flags = ("--config", str(login))
    with (
        served(ScriptedUpstream()) as url,
        serving(url, tmp_path / "data", "--encoder", "off", *flags) as host,
    ):
        assert not host.runs("broker")

        def seen() -> tuple[str, int]:
            answer = httpx.post(host.url + "/v1/chat/completions", json=body)
            version = int(answer.headers["x-cachemind-version"])
            return answer.headers["x-cachemind-outcome"], version

        assert seen()[0] == "miss"
        # Version 1: Faust, which has a client of its own, folded it.
        eventually(lambda: seen() == ("hit_exact", 1))
        done = run_cli("doctor", "--rebuild", f"--data-dir={tmp_path / 'data'}", *flags)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_password_is_said_without_saying_it(
    login: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CACHEMIND_KAFKA_SASL_PASSWORD", "wrong-secret")
    done = run_cli("doctor", f"--data-dir={tmp_path / 'data'}", "--config", str(login))
    assert done.returncode == 1
    assert "uthentication" in done.stderr
    assert "wrong-secret" not in done.stdout + done.stderr
