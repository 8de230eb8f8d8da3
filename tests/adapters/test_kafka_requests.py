"""Sessions of several topics, whose answers are kept in one partition of real Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

import pytest

from cachemind.adapters import kafka_requests
from cachemind.adapters.kafka_requests import KafkaRequestSession, RequestTopics
from cachemind.adapters.kafka_topics import ensure_topics
from cachemind.core.access import Role
from cachemind.core.grant_topics import Grant, ReplyRule, grant_specs
from cachemind.core.topics import Mode, topics
from cachemind.errors import LogUnavailable
from cachemind.ports.commands import Outgoing
from cachemind.types import Namespace, Offset, Partition
from cachemind_services.broker import EmbeddedBroker

pytestmark = pytest.mark.broker
HOME = Partition(1)
FIRST = Partition(0)


@dataclass
class Sessions:
    """Opens sessions, and commits answers by them."""

    kafka: dict[str, str]
    prefix: str
    opened: ExitStack = field(default_factory=ExitStack)

    def of(self, requests: str, partition: Partition) -> KafkaRequestSession:
        own = topics(2, Mode.DEVELOPMENT, self.prefix)
        names = RequestTopics(
            requests=requests,
            answers=own.answers.name,
            kept_at=HOME,
            wal=own.wal,
            dlq=own.dlq,
            group=own.requests.name,
            replies=ReplyRule(),
        )
        session = KafkaRequestSession(self.kafka, names, partition)
        self.opened.enter_context(closing(session))
        return session

    def answered(self, key: bytes) -> Outgoing:
        return Outgoing(
            topic=f"{self.prefix}.answers",
            key=key,
            value=b"v",
            headers=(),
            partition=HOME,
        )


@pytest.fixture
def sessions(broker: EmbeddedBroker, topic_prefix: str) -> Iterator[Sessions]:
    kafka = {"bootstrap.servers": str(broker.bootstrap_servers)}
    grant = Grant(namespace=Namespace("shop"), role=Role.CACHE_WRITER)
    pair = grant_specs(topic_prefix, grant, Mode.DEVELOPMENT)
    own = topics(2, Mode.DEVELOPMENT, topic_prefix)
    ensure_topics(kafka, [*own.all(), *pair])
    found = Sessions(kafka, topic_prefix)
    with found.opened:
        yield found


def test_an_answer_behind_anothers_open_transaction_is_not_missed(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = sessions.of(f"{sessions.prefix}.requests", HOME)
    granted = sessions.of(f"{sessions.prefix}.requests.shop.cache-writer", FIRST)
    for session in (shared, granted):
        assert session.take_over() == 0
    shared.begin()
    # A key that Kafka puts in that partition.
    left_open = shared._writer.append_open(f"{sessions.prefix}.answers", b"d", b"v", ())
    while not left_open.done():
        shared._writer._ready(0).poll(0.01)
    assert left_open.result().partition == HOME
    granted.begin()
    granted.commit([sessions.answered(b"committed")], Offset(1))
    assert granted.take_over() == 1

    monkeypatch.setattr(kafka_requests, "DEADLINE_S", 0.3)
    with pytest.raises(LogUnavailable, match="holds back answers"):
        list(granted.answers())
    shared.give_up()
    monkeypatch.setattr(kafka_requests, "DEADLINE_S", 10.0)
    assert [record.key for record in granted.answers()] == [b"committed"]
    # Each has its own place among the commands, and owns it by an id of its own.
    assert shared.take_over() == 0
    granted.begin()
    granted.commit([], Offset(2))
    assert granted.take_over() == 2
