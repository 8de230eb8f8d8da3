"""A cluster that is open until it has rules, as MSK is at the first apply."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachemind.errors import LogRejected
from cachemind_services.broker import EmbeddedBroker, storage
from cachemind_services.broker.server_config import Ports, server_properties
from cachemind_services.broker.sockets import free_port
from infra.terraform.container.apply_topics import apply, plan_in
from tests.infra.test_container_topics import document
from tests.integration.serving import eventually
from tests.integration.test_kafka_security import SECRET, login

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    port = free_port()

    def open_until_acls(log_dir: Path, ports: Ports) -> str:
        return server_properties(log_dir, ports) + (
            f"listeners=PLAINTEXT://127.0.0.1:{ports.broker},"
            f"CONTROLLER://127.0.0.1:{ports.controller},CLIENT://127.0.0.1:{port}\n"
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{ports.broker},"
            f"CLIENT://127.0.0.1:{port}\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT,CLIENT:SASL_PLAINTEXT\n"
            "inter.broker.listener.name=PLAINTEXT\n"
            "listener.name.client.sasl.enabled.mechanisms=PLAIN\n"
            "listener.name.client.plain.sasl.jaas.config="
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'user_topics="{SECRET}" user_bob="{SECRET}";\n'
            "authorizer.class.name="
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
            "allow.everyone.if.no.acl.found=true\n"
            "super.users=User:ANONYMOUS\n"
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "server_properties", open_until_acls)
        with EmbeddedBroker(tmp_path / "open"):
            yield f"127.0.0.1:{port}"


def test_the_first_plan_closes_it_and_the_same_account_applies_the_next(
    servers: str,
) -> None:
    topics, bob = login(servers, "topics"), login(servers, "bob")
    first = plan_in(json.dumps(document("open")))
    assert "created topic open.wal" in list(apply(topics, first))
    second = plan_in(json.dumps(document("open", retention_ms="86400000")))
    said = list(apply(topics, second))
    assert "open.wal: retention.ms is 86400000, was -1" in said
    eventually(lambda: not list(apply(topics, second)))
    with pytest.raises(LogRejected):
        list(apply(bob, first))
