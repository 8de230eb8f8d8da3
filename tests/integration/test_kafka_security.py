"""A Kafka with passwords and access control, reached through plain properties."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import ensure_topics
from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.client import CacheMind, Kafka, NotAuthenticated
from cachemind.core.topics import Mode, TopicSpec, topics
from cachemind.errors import LogRejected
from cachemind.types import Offset, Partition
from tests.secured_kafka import Secured, secured_broker

pytestmark = pytest.mark.broker

DEADLINE_S = 30.0
WAL: TopicSpec = topics(1, Mode.DEVELOPMENT, "secured").wal
ONLY = Partition(0)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker where `alice` may do everything and `bob` nothing."""
    folder = tmp_path_factory.mktemp("secured")
    with secured_broker(folder, users=["bob"], admins=["alice"]) as found:
        yield found


def test_a_principal_with_rights_creates_writes_and_reads(kafka: Secured) -> None:
    alice = kafka.login("alice")
    ensure_topics(alice, [WAL], DEADLINE_S)
    writer = KafkaWriter(alice, WAL.name)
    lsn = writer.append(b"k", b"v", ()).result(DEADLINE_S)
    reader = KafkaReader(alice, WAL.name)
    first, end = reader.bounds(ONLY)
    assert first <= lsn.offset < end
    assert [r.value for b in reader.read(ONLY, lsn.offset, end) for r in b] == [b"v"]
    writer.close(DEADLINE_S)
    reader.close()


def test_a_wrong_password_is_refused_long_before_the_deadline(kafka: Secured) -> None:
    asked = time.monotonic()
    with pytest.raises(LogRejected, match=r"(?i)authentication") as caught:
        ensure_topics(kafka.login("alice", "wrong-secret"), [WAL], DEADLINE_S)
    assert time.monotonic() - asked < DEADLINE_S / 2
    assert "wrong-secret" not in str(caught.value)


def test_the_client_says_that_a_password_is_wrong(kafka: Secured) -> None:
    login = kafka.login("alice", "wrong-secret")
    wrong = {name: str(value) for name, value in login.items()}
    where = f"kafka://{wrong.pop('bootstrap.servers')}"
    with (
        CacheMind(
            where, namespace="a", kafka=Kafka(properties=wrong), timeout_s=3
        ) as cache,
        pytest.raises(NotAuthenticated, match=r"(?i)authentication failed") as caught,
    ):
        cache.lookup("m", [{"role": "user", "content": "q"}])
    assert "wrong-secret" not in str(caught.value)


def test_a_principal_without_rights_is_refused_each_thing_it_tries(
    kafka: Secured,
) -> None:
    ensure_topics(kafka.login("alice"), [WAL], DEADLINE_S)
    bob = kafka.login("bob")
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
