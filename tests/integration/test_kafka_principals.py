"""Who asks on Kafka: names and passwords, access rules, and the topics of grants.

A real broker with SASL/SCRAM and Kafka's own authorizer. The shop's application tries
to get at what is another's; see `kafka_town`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, unlisted
    AclBinding,
    AclOperation,
    AclPermissionType,
    NewPartitions,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import Consumer, NewTopic

from cachemind.events import Stored
from tests.integration.grant_probes import (
    ADMIN,
    PROBE,
    Attempts,
    chat,
    commands,
    leaks,
    send,
)
from tests.integration.grants_host import buried, envelopes
from tests.integration.kafka_town import (
    EU,
    EU_APP,
    LATE_APP,
    SHOP,
    SHOP_APP,
    WAIT_S,
    Town,
    running_town,
    words_for,
)
from tests.integration.requests_host import Client
from tests.integration.serving import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # theirs
GROUP_DENIED = KafkaError.GROUP_AUTHORIZATION_FAILED
DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    GROUP_DENIED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    # The client's own: the broker does not tell it who leads such a partition.
    KafkaError._NOENT,
}


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with running_town(tmp_path_factory.mktemp("town")) as found:
        yield found


def test_a_grant_works_in_its_own_namespace(town: Town) -> None:
    for command, body in commands(town.owner).items():
        answer = town.shop.want(command, **body)
        # Nobody is signing here, so no receipt is there to be found.
        code = answer.body.get("code")
        assert code == ("not_offered" if command == "FindReceipt" else None)
        assert answer.value["namespace"] == SHOP
    found = [one for one in envelopes(town.host, SHOP) if isinstance(one.body, Stored)]
    assert {one.principal for one in found} == {f"kafka:{SHOP}.{ADMIN}"}
    assert len(found) == 1


# ---- what the broker refuses --------------------------------------------------------


def test_the_broker_lets_nobody_write_to_what_is_anothers(town: Town) -> None:
    before = town.what_is_theirs()
    # Without idempotence, whose own right would be asked for first.
    producer = Producer({**town.thief(), "enable.idempotence": False})
    topics = [*town.elsewhere(), town.shop.replies, *look_alikes(town)]
    codes: dict[str, int] = {}
    value = Attempts(town.shop, town.owner).of(
        "straight", "Invalidate", {"kind": "all"}, namespace=EU
    )
    for topic in topics:

        def told(error: KafkaError | None, _: object, topic: str = topic) -> None:
            codes[topic] = error.code() if error else 0

        producer.produce(topic, value.value, value.key, on_delivery=told)
    assert producer.flush(WAIT_S) == 0
    assert codes == dict.fromkeys(topics, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert town.what_is_theirs() == before


def test_the_broker_lets_nobody_read_what_is_anothers(town: Town) -> None:
    topics = [*town.elsewhere(), town.shop.requests]
    refused = dict.fromkeys(topics, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    group = f"{town.prefix}.client.{town.shop.grant}:another"
    consumer = Consumer({**town.thief(), "group.id": group})
    codes: dict[str, int] = {}
    with closing(consumer):
        consumer.subscribe(topics)

        def all_told() -> bool:
            message = consumer.poll(0.2)
            if message is not None:
                error = message.error()
                codes[message.topic() or ""] = error.code() if error else 0
            return len(codes) == len(topics)

        eventually(all_told)
    assert codes == refused
    listed = set(town.admin().list_topics(timeout=WAIT_S).topics)
    assert listed == {town.shop.requests, town.shop.replies}


def test_the_broker_lets_nobody_in_anothers_group(town: Town) -> None:
    theirs = [
        town.eu.group,
        f"{town.prefix}.client.{EU}.{ADMIN}:new",
        f"{town.prefix}.client.{SHOP}",
        f"{town.prefix}.client.{SHOP}.{ADMIN}",
        f"{town.prefix}.client.{SHOP}.{ADMIN}.eu.{ADMIN}:new",
        f"{town.prefix}.requests",
        f"{town.prefix}.materializer.1",
    ]
    admin, own = town.admin(), TopicPartition(town.shop.replies, 0, 0)
    for group in theirs:
        moved = ConsumerGroupTopicPartitions(group, [own])
        for name, asked in {
            "move": admin.alter_consumer_group_offsets([moved]),
            "look": admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group)]
            ),
            "delete": admin.delete_consumer_groups([group]),
        }.items():
            assert refusals(asked) == {GROUP_DENIED}, (group, name)
        with closing(Consumer({**town.thief(), "group.id": group})) as consumer:
            consumer.subscribe([town.shop.replies])
            message = consumer.poll(WAIT_S)
            assert message is not None, group
            error = message.error()
            assert error is not None, group
            assert error.code() == GROUP_DENIED, group


def test_the_broker_shuts_nobody_out_for_a_stranger(town: Town) -> None:
    """Who began with another's transactional id would end that one's transactions."""
    for name in (
        f"{town.prefix}.requests.0",
        f"{town.eu.requests}.0",
        f"{town.shop.requests}.0",
        f"{town.prefix}.operator",
        "anything",
    ):
        producer = Producer({**town.thief(), "transactional.id": name})
        with pytest.raises(KafkaException) as refused:
            producer.init_transactions(WAIT_S)
        code = refused.value.args[0].code()
        assert code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, name


def test_the_broker_lets_nobody_grant_himself_anything(town: Town) -> None:
    admin, before = town.admin(), town.what_is_theirs()
    theirs = [town.eu.requests, town.eu.replies]
    right = AclBinding(
        ResourceType.TOPIC,
        town.eu.requests,
        ResourcePatternType.LITERAL,
        f"User:{SHOP_APP}",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4_096)
    password = UserScramCredentialUpsertion(EU_APP, info, b"of my own")
    asked: Mapping[str, Callable[[], Mapping[Any, Future[Any]]]] = {
        "topics": lambda: admin.create_topics(
            [NewTopic(name, 1, 1) for name in look_alikes(town)]
        ),
        "no topics": lambda: admin.delete_topics(theirs),
        "partitions": lambda: admin.create_partitions(
            [NewPartitions(name, 2) for name in theirs]
        ),
        "no records": lambda: admin.delete_records(
            [TopicPartition(name, 0, 1) for name in theirs]
        ),
        "offsets": lambda: admin.list_offsets(
            {TopicPartition(name, 0): LATEST for name in theirs}
        ),
        "rules": lambda: admin.create_acls([right]),
        "password": lambda: admin.alter_user_scram_credentials([password]),
    }
    for name, ask in asked.items():
        found = refusals(ask())
        assert found, name
        assert found <= DENIED, name
    assert town.what_is_theirs() == before


def look_alikes(town: Town) -> list[str]:
    """Return names that a topic of a grant of the other's could have."""
    return [
        f"{town.prefix}.{kind}.{grant}"
        for kind in ("requests", "replies")
        for grant in (
            f"{EU}.cache-reader",
            f"{EU}.cache-writer",
            f"{EU}.auditor",
            f"{EU.upper()}.{ADMIN}",
            f"{EU}-.{ADMIN}",
            f"{EU}.{ADMIN}.{ADMIN}",
            f"{SHOP}.cache-writer",
        )
    ]


def refusals(asked: Mapping[Any, Future[Any]]) -> set[int]:
    """Return the codes of all that was refused; of what was done, 0."""
    found = set()
    for future in asked.values():
        error = future.exception(WAIT_S)
        if error is None:
            found.add(0)
            continue
        assert isinstance(error, KafkaException), error
        found.add(error.args[0].code())
    return found


# ---- what is refused behind it ------------------------------------------------------


def test_what_is_said_of_another_in_ones_own_topic_is_not_done(town: Town) -> None:
    before, by = town.what_is_theirs(), town.shop
    attempts = Attempts(by, town.owner)
    places = [*town.elsewhere(), by.requests]
    probes = [
        *attempts.by_request_id(),
        *attempts.by_header(),
        *attempts.by_name([EU, EU.upper(), f"{EU}.", f"{EU}.{ADMIN}"]),
        *attempts.by_reply_to(places),
    ]
    send(by, probes)
    by.want("Feedback", **commands(town.owner)["Feedback"])
    graves = buried(town.host, PROBE)
    assert leaks(town.owner, by, probes, graves) == []
    assert town.what_is_theirs() == before
    for prompt in town.owner.prompts:
        answer = town.eu.want("Lookup", request=chat(prompt))
        assert answer.body["outcome"] == "hit_exact"
        assert town.owner.marker.encode() in answer.raw


def test_a_stranger_at_the_topic_that_all_share_is_refused(town: Town) -> None:
    """Nobody knows who that is: also where the broker would let him write there."""
    before = town.what_is_theirs()
    shared = Client(town.kafka.plain, town.prefix, EU)
    with closing(shared):
        for command, body in commands(town.owner).items():
            answer = shared.want(command, **body)
            assert answer.body["code"] == "forbidden", (command, answer.body)
            assert town.owner.marker.encode() not in answer.raw
    (state, counts), (state_before, counts_before) = town.what_is_theirs(), before
    assert state == state_before
    # Who was refused is told on its own topic, and nowhere else.
    told = len(commands(town.owner))
    assert counts == [*counts_before[:2], counts_before[2] + told, counts_before[3]]


# ---- grants come and go -------------------------------------------------------------


def test_a_grant_is_there_once_it_is_made_and_gone_once_it_is_taken(
    town: Town,
) -> None:
    words, grant = words_for("late", "cache-reader", LATE_APP), "late.cache-reader"
    assert not may_write(town, LATE_APP, grant)
    town.grants("create", *words)
    listed = town.grants("list")
    for word in ("late", "cache-reader", LATE_APP, SHOP_APP):
        assert word in listed
    with closing(town.client(LATE_APP, grant)) as late:
        answer = late.want("Lookup", request=chat("Already?"))
        assert answer.body["outcome"] == "miss"
        refused = late.want("Put", **commands(town.owner)["Put"])
        assert (refused.body["code"], refused.body["field"]) == ("forbidden", "store")
    town.grants("revoke", *words)
    assert LATE_APP not in town.grants("list")
    eventually(lambda: not may_write(town, LATE_APP, grant))


def may_write(town: Town, user: str, grant: str) -> bool:
    """Return whether the broker takes a record of somebody's on a grant's topic."""
    producer = Producer({**town.kafka.login(user), "enable.idempotence": False})
    codes: list[int] = []
    producer.produce(
        f"{town.prefix}.requests.{grant}",
        b"v",
        on_delivery=lambda error, _: codes.append(error.code() if error else 0),
    )
    assert producer.flush(WAIT_S) == 0
    return codes == [0]
