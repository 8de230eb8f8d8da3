from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Consumer

from cachemind.adapters.kafka_groups import KafkaGroupOffsets
from cachemind.adapters.kafka_topics import describe_topics, ensure_topics
from cachemind.core.topics import Cleanup, Mode, TopicSpec, topics
from cachemind.errors import LogRejected, LogUnavailable, TopicMisconfigured
from cachemind.types import Offset
from cachemind_services.broker import EmbeddedBroker
from tests.contracts.log_contract import (
    ACK_S,
    HOME,
    PARTITIONS,
    GroupOffsetsContract,
)

pytestmark = pytest.mark.broker

Properties = dict[str, str | int | float | bool]


@pytest.fixture
def properties(broker: EmbeddedBroker) -> Properties:
    return {"bootstrap.servers": broker.bootstrap_servers}


@pytest.fixture
def wal(topic_prefix: str) -> TopicSpec:
    return topics(PARTITIONS, Mode.DEVELOPMENT, topic_prefix).wal


def test_missing_topics_are_created_as_the_table_says(
    properties: Properties, broker: EmbeddedBroker, topic_prefix: str
) -> None:
    specs = topics(3, Mode.DEVELOPMENT, topic_prefix).all()
    identity = ensure_topics(properties, specs, ACK_S)
    assert identity.cluster_id == broker.cluster_id
    found = describe_topics(properties, [spec.name for spec in specs], ACK_S)
    assert {name: topic.topic_id for name, topic in found.items()} == dict(
        identity.topic_ids
    )
    for spec in specs:
        there = found[spec.name]
        assert there.partitions == spec.partitions
        assert there.settings.items() >= spec.settings().items()


def test_a_second_start_finds_the_same_log(
    properties: Properties, wal: TopicSpec
) -> None:
    first = ensure_topics(properties, [wal], ACK_S)
    assert ensure_topics(properties, [wal], ACK_S) == first


def test_topics_missing_beside_existing_ones_are_created(
    properties: Properties, topic_prefix: str
) -> None:
    table = topics(PARTITIONS, Mode.DEVELOPMENT, topic_prefix)
    before = ensure_topics(properties, [table.wal], ACK_S)
    after = ensure_topics(properties, table.all(), ACK_S)
    assert after.topic_ids[table.wal.name] == before.topic_ids[table.wal.name]
    assert len(after.topic_ids) == len(table.all())


def test_a_compacted_wal_stops_the_start(
    properties: Properties, wal: TopicSpec
) -> None:
    ensure_topics(properties, [replace(wal, cleanup=Cleanup.COMPACT)], ACK_S)
    with pytest.raises(TopicMisconfigured) as caught:
        ensure_topics(properties, [wal], ACK_S)
    error = caught.value
    assert (error.topic, error.setting) == (wal.name, "cleanup.policy")
    assert (error.expected, error.found) == ("delete", "compact")


def test_another_partition_count_stops_the_start(
    properties: Properties, wal: TopicSpec
) -> None:
    ensure_topics(properties, [wal], ACK_S)
    with pytest.raises(TopicMisconfigured) as caught:
        ensure_topics(properties, [replace(wal, partitions=PARTITIONS + 1)], ACK_S)
    error = caught.value
    assert (error.setting, error.expected, error.found) == ("partitions", "5", "4")


def test_a_laptops_topic_stops_a_production_start_with_every_reason(
    properties: Properties, wal: TopicSpec, topic_prefix: str
) -> None:
    ensure_topics(properties, [wal], ACK_S)
    production = topics(PARTITIONS, Mode.PRODUCTION, topic_prefix).wal
    with pytest.raises(TopicMisconfigured) as caught:
        ensure_topics(properties, [production], ACK_S)
    assert caught.value.setting == "replication.factor"
    (note,) = caught.value.__notes__
    assert "min.insync.replicas must be at least 2, found 1" in note


def test_a_cluster_too_small_for_production_is_told_so(
    properties: Properties, topic_prefix: str
) -> None:
    production = topics(PARTITIONS, Mode.PRODUCTION, topic_prefix)
    with pytest.raises(TopicMisconfigured) as caught:
        ensure_topics(properties, production.all(), ACK_S)
    assert caught.value.setting == "replication.factor"
    assert not describe_topics(properties, [production.wal.name], ACK_S)


def test_topics_are_created_once_the_broker_is_up(
    broker: EmbeddedBroker, wal: TopicSpec
) -> None:
    # The first address answers nothing, as a broker that is still coming up.
    properties: Properties = {
        "bootstrap.servers": f"127.0.0.1:1,{broker.bootstrap_servers}"
    }
    assert ensure_topics(properties, [wal], ACK_S).cluster_id == broker.cluster_id


def test_no_broker_by_the_deadline_is_unavailable(wal: TopicSpec) -> None:
    asked = time.monotonic()
    with pytest.raises(LogUnavailable, match="describe the cluster"):
        ensure_topics({"bootstrap.servers": "127.0.0.1:1"}, [wal], 1.0)
    assert time.monotonic() - asked < 3


class TestKafkaGroupOffsets(GroupOffsetsContract):
    @pytest.fixture
    def group(
        self, properties: Properties, wal: TopicSpec
    ) -> Iterator[KafkaGroupOffsets]:
        ensure_topics(properties, [wal], ACK_S)
        group = KafkaGroupOffsets(properties, f"{wal.name}-group", wal.name, ACK_S)
        yield group
        group.close()

    def test_a_live_group_commits_for_itself(
        self, properties: Properties, wal: TopicSpec, group: KafkaGroupOffsets
    ) -> None:
        group.commit({HOME: Offset(1)})
        member = Consumer({**properties, "group.id": f"{wal.name}-group"})
        member.subscribe([wal.name])
        deadline = time.monotonic() + ACK_S
        while not member.assignment():
            assert time.monotonic() < deadline
            member.poll(0.1)
        with pytest.raises(LogRejected, match="live member"):
            group.commit({HOME: Offset(2)})
        member.close()
        group.commit({HOME: Offset(3)})
        assert group.committed([HOME]) == {HOME: 3}
