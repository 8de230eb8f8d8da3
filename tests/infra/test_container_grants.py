"""A grant's topics and rules, as the task of topics applies them to a real cluster."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from cachemind.core.access import Role
from cachemind.core.grant_topics import Grant, GrantTopics, grant_specs
from cachemind.core.topics import Mode
from cachemind.types import Namespace
from tests.infra.test_container_topics import ACLS, GATEWAY, document, settled
from tests.integration.serving import eventually
from tests.integration.test_kafka_security import kafka
from tests.secured_kafka import Properties, Secured

__all__ = ["kafka"]  # the fixture: a broker where one has to say who one is

pytestmark = pytest.mark.broker

TABLE: Final = ACLS.with_name("topics.json")
WAIT_S: Final = 20.0


def test_a_grant_lets_its_user_ask_and_hear_and_nothing_else(
    kafka: Secured, topic_prefix: str
) -> None:
    grant = Grant(namespace=Namespace("a.shop"), role=Role.CACHE_READER)
    names = GrantTopics(topic_prefix)
    mine = {"requests": names.requests(grant), "replies": names.replies(grant)}
    group = names.group_prefix(grant)
    wanted = document(topic_prefix)
    wanted["topics"] += [
        {"settings": {}, "name": one.name, "partitions": 1, "replication_factor": 1}
        for one in grant_specs(topic_prefix, grant, Mode.DEVELOPMENT)
    ]
    named = {"prefix": topic_prefix, "namespace": grant.namespace, "role": grant.role}
    wanted["acls"] = [
        {**one, "name": one["name"].format(**named), "principal": GATEWAY}
        for one in json.loads(TABLE.read_text("utf-8"))["grants"]["rules"]
    ]
    settled(kafka, wanted)
    ours = kafka.login("bob")
    eventually(lambda: written(ours, mine["requests"]) == 0)
    assert written(kafka.login("alice"), mine["replies"]) == 0
    denied = KafkaError.TOPIC_AUTHORIZATION_FAILED
    for topic in (mine["replies"], f"{topic_prefix}.requests", f"{topic_prefix}.wal"):
        assert written(ours, topic) == denied
    assert heard(ours, mine["replies"], f"{group}one") == b"v"
    for topic in (mine["requests"], f"{topic_prefix}.replies"):
        assert heard(ours, topic, f"{group}two") == denied
    assert (
        heard(ours, mine["replies"], "other") == KafkaError.GROUP_AUTHORIZATION_FAILED
    )


def written(ours: Properties, topic: str) -> int:
    """Write a record; return 0, or what Kafka said."""
    # Without idempotence, whose own right would be asked for first.
    producer = Producer({**ours, "enable.idempotence": False})
    codes: list[int] = []
    producer.produce(
        topic,
        b"v",
        on_delivery=lambda error, _: codes.append(error.code() if error else 0),
    )
    assert producer.flush(WAIT_S) == 0
    return codes[0]


def heard(ours: Properties, topic: str, group: str) -> bytes | int | None:
    """Return the first record of a topic that a group's member gets, or an error."""
    consumer = Consumer({**ours, "group.id": group, "auto.offset.reset": "earliest"})
    with closing(consumer):
        consumer.subscribe([topic])
        found = consumer.poll(WAIT_S)
        assert found is not None
        error = found.error()
        return found.value() if error is None else error.code()
