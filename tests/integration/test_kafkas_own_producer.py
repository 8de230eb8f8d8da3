"""Kafka's own (Java) producer and we send a key to the same partition."""

from __future__ import annotations

import subprocess

import pytest

from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import ensure_topics
from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.core.partitioner import partition_of
from cachemind.core.topics import Mode, topics
from cachemind.ports import LogRecord
from cachemind.types import Partition
from cachemind_services.broker import EmbeddedBroker, KafkaDistribution
from cachemind_services.broker.java import find_java

PARTITIONS = 7
KEYS = [b"n%s-%d" % (b"x" * (i % 5), i) for i in range(300)]
TIMEOUT_S = 60.0


@pytest.mark.broker
def test_javas_producer_ours_and_our_arithmetic_agree_on_every_key(
    broker: EmbeddedBroker, topic_prefix: str
) -> None:
    properties = {"bootstrap.servers": broker.bootstrap_servers}
    wal = topics(PARTITIONS, Mode.DEVELOPMENT, topic_prefix).wal
    ensure_topics(properties, [wal], TIMEOUT_S)

    produce_with_java(broker.bootstrap_servers, wal.name)
    writer = KafkaWriter(properties, wal.name)
    futures = [writer.append(key, b"ours", ()) for key in KEYS]
    writer.close(TIMEOUT_S)

    by_java = {
        record.key: record.lsn.partition
        for record in read_all(properties, wal.name)
        if record.value == b"java"
    }
    expected = {key: partition_of(key, PARTITIONS) for key in KEYS}
    assert by_java == expected
    assert [future.result(0).partition for future in futures] == [*expected.values()]
    assert set(expected.values()) == set(range(PARTITIONS))


def produce_with_java(servers: str, topic: str) -> None:
    lines = b"".join(key + b"\tjava\n" for key in KEYS)
    subprocess.run(
        [
            str(find_java(None).path),
            "-Xmx128m",
            "-cp",
            KafkaDistribution.ensure().class_path,
            "org.apache.kafka.tools.ConsoleProducer",
            *("--bootstrap-server", servers, "--topic", topic),
            *("--reader-property", "parse.key=true"),
        ],
        input=lines,
        check=True,
        capture_output=True,
        timeout=TIMEOUT_S,
    )


def read_all(properties: dict[str, str], topic: str) -> list[LogRecord]:
    reader = KafkaReader(properties, topic)
    records = [
        record
        for partition in map(Partition, range(PARTITIONS))
        for batch in reader.read(partition, *reader.bounds(partition))
        for record in batch
    ]
    reader.close()
    return records
