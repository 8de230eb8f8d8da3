from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError

from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.errors import LogRejected, LogUnavailable
from cachemind.types import Offset
from tests.contracts.log_contract import ACK_S, HOME, PARTITIONS, append, values
from tests.mock_kafka import FETCH, LIST_OFFSETS, MockKafka, mock_kafka

TOPIC = "cachemind.wal"
STALL_S = 1.0
SLACK_S = 3.0
"""What a busy machine may add to a deadline."""


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    with mock_kafka() as running:
        running.create_topic(TOPIC, PARTITIONS)
        writer = KafkaWriter({"bootstrap.servers": running.bootstrap_servers}, TOPIC)
        append(writer, b"1", b"2")
        writer.close(ACK_S)
        yield running


@pytest.fixture
def reader(kafka: MockKafka) -> Iterator[KafkaReader]:
    properties = {"bootstrap.servers": kafka.bootstrap_servers}
    reader = KafkaReader(properties, TOPIC, stall_s=STALL_S, request_s=STALL_S)
    yield reader
    reader.close()


def read(reader: KafkaReader, end: int = 2) -> list[bytes | None]:
    return values(reader.read(HOME, Offset(0), Offset(end)))


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.BROKER_NOT_AVAILABLE,
    ],
)
def test_what_passes_in_time_is_waited_out(
    kafka: MockKafka, reader: KafkaReader, code: int
) -> None:
    kafka.answer_with(FETCH, code)
    assert read(reader) == [b"1", b"2"]


def test_a_principal_that_may_not_read_is_told_at_once(
    kafka: MockKafka, reader: KafkaReader
) -> None:
    kafka.answer_with(FETCH, *[KafkaError.TOPIC_AUTHORIZATION_FAILED] * 100)
    with pytest.raises(LogRejected):
        read(reader)


def test_a_log_that_never_answers_is_unavailable_in_time(
    kafka: MockKafka, reader: KafkaReader
) -> None:
    kafka.answer_with(FETCH, *[KafkaError.NOT_LEADER_FOR_PARTITION] * 10_000)
    asked = time.monotonic()
    with pytest.raises(LogUnavailable, match="nothing after 0"):
        read(reader)
    assert STALL_S <= time.monotonic() - asked < STALL_S + SLACK_S


def test_bounds_that_the_principal_may_not_ask_for_are_rejected(
    kafka: MockKafka, reader: KafkaReader
) -> None:
    kafka.answer_with(LIST_OFFSETS, *[KafkaError.TOPIC_AUTHORIZATION_FAILED] * 100)
    with pytest.raises(LogRejected):
        reader.bounds(HOME)
    kafka.answer_normally(LIST_OFFSETS)
    assert reader.bounds(HOME) == (0, 2)
