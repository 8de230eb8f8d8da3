"""A Kafka with passwords and access control, reached through plain properties."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import ensure_topics
from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.core.topics import Mode, TopicSpec, topics
from cachemind.errors import LogRejected
from cachemind.types import Offset, Partition
from cachemind_services.broker import EmbeddedBroker, storage
from cachemind_services.broker.server_config import Ports, server_properties
from cachemind_services.broker.sockets import free_port

pytestmark = pytest.mark.broker

DEADLINE_S = 30.0
SECRET = "correct-horse-battery"
WAL: TopicSpec = topics(1, Mode.DEVELOPMENT, "secured").wal
ONLY = Partition(0)

Properties = dict[str, str | int | float | bool]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with a second listener, where one has to say who one is.

    `alice` may do everything and `bob` nothing. Ours is not configurable in this
    way on purpose, so the test adds to what it writes.
    """
    port = free_port()

    def secured(log_dir: Path, ports: Ports) -> str:
        listeners = (
            f"PLAINTEXT://127.0.0.1:{ports.broker},"
            f"CONTROLLER://127.0.0.1:{ports.controller}"
        )
        return server_properties(log_dir, ports) + (
            f"listeners={listeners},CLIENT://127.0.0.1:{port}\n"
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{ports.broker},"
            f"CLIENT://127.0.0.1:{port}\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT,CLIENT:SASL_PLAINTEXT\n"
            "inter.broker.listener.name=PLAINTEXT\n"
            "listener.name.client.sasl.enabled.mechanisms=PLAIN\n"
            "listener.name.client.plain.sasl.jaas.config="
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'user_alice="{SECRET}" user_bob="{SECRET}";\n'
            "authorizer.class.name="
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
            "super.users=User:ANONYMOUS;User:alice\n"
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "server_properties", secured)
        with EmbeddedBroker(tmp_path_factory.mktemp("secured")):
            yield f"127.0.0.1:{port}"


def login(servers: str, name: str, password: str = SECRET) -> Properties:
    return {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": name,
        "sasl.password": password,
    }


def test_a_principal_with_rights_creates_writes_and_reads(servers: str) -> None:
    alice = login(servers, "alice")
    ensure_topics(alice, [WAL], DEADLINE_S)
    writer = KafkaWriter(alice, WAL.name)
    lsn = writer.append(b"k", b"v", ()).result(DEADLINE_S)
    reader = KafkaReader(alice, WAL.name)
    first, end = reader.bounds(ONLY)
    assert first <= lsn.offset < end
    assert [r.value for b in reader.read(ONLY, lsn.offset, end) for r in b] == [b"v"]
    writer.close(DEADLINE_S)
    reader.close()


def test_a_wrong_password_is_refused_long_before_the_deadline(servers: str) -> None:
    asked = time.monotonic()
    with pytest.raises(LogRejected, match=r"(?i)authentication") as caught:
        ensure_topics(login(servers, "alice", "wrong-secret"), [WAL], DEADLINE_S)
    assert time.monotonic() - asked < DEADLINE_S / 2
    assert "wrong-secret" not in str(caught.value)


def test_a_principal_without_rights_is_refused_each_thing_it_tries(
    servers: str,
) -> None:
    ensure_topics(login(servers, "alice"), [WAL], DEADLINE_S)
    bob = login(servers, "bob")
    with pytest.raises(LogRejected):
        ensure_topics(bob, [WAL], DEADLINE_S)
    reader = KafkaReader(bob, WAL.name)
    with pytest.raises(LogRejected):
        reader.bounds(ONLY)
    with pytest.raises(LogRejected):
        list(reader.read(ONLY, Offset(0), Offset(1)))
    reader.close()
    writer = KafkaWriter(bob, WAL.name)
    error = writer.append(b"k", b"v", ()).exception(DEADLINE_S)
    assert isinstance(error, LogRejected)
    writer.close(0)
