from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from threading import Thread

import pytest
from confluent_kafka import KafkaError

from cachemind.adapters.kafka_config import Properties
from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.errors import LogError, LogRejected, LogUnavailable
from cachemind.types import Lsn
from tests.mock_kafka import INIT_PRODUCER_ID, PRODUCE, MockKafka, mock_kafka

TOPIC = "cachemind.wal"
ACK_S = 20.0
SLACK_S = 3.0
"""What a busy machine may add to a deadline."""
NOWHERE: Properties = {"bootstrap.servers": "127.0.0.1:1", "delivery.timeout.ms": 500}


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    with mock_kafka() as running:
        running.create_topic(TOPIC, 4)
        yield running


@pytest.fixture
def writer(kafka: MockKafka) -> Iterator[KafkaWriter]:
    properties: Properties = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "delivery.timeout.ms": 2_000,
    }
    writer = KafkaWriter(properties, TOPIC)
    yield writer
    writer.close(ACK_S)


def append(writer: KafkaWriter) -> BaseException | None:
    return writer.append(b"team-a", b"v", ()).exception(ACK_S)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, LogRejected),
        (KafkaError.MSG_SIZE_TOO_LARGE, LogRejected),
        (KafkaError.INVALID_RECORD, LogRejected),
        (KafkaError.POLICY_VIOLATION, LogRejected),
    ],
)
def test_a_record_that_kafka_will_never_take_is_rejected(
    kafka: MockKafka, writer: KafkaWriter, code: int, expected: type[LogError]
) -> None:
    assert append(writer) is None
    kafka.answer_with(PRODUCE, code)
    assert isinstance(append(writer), expected)


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
    ],
)
def test_what_passes_in_time_is_retried_and_acknowledged(
    kafka: MockKafka, writer: KafkaWriter, code: int
) -> None:
    kafka.answer_with(PRODUCE, code, code)
    assert append(writer) is None


def test_what_does_not_pass_in_time_is_unavailable(
    kafka: MockKafka, writer: KafkaWriter
) -> None:
    assert append(writer) is None
    kafka.answer_with(PRODUCE, *[KafkaError.NOT_ENOUGH_REPLICAS] * 1_000)
    assert isinstance(append(writer), LogUnavailable)
    kafka.answer_normally(PRODUCE)
    assert append(writer) is None


def test_after_an_error_for_good_a_new_producer_takes_over(
    kafka: MockKafka, writer: KafkaWriter
) -> None:
    assert append(writer) is None
    kafka.answer_with(PRODUCE, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert append(writer) is not None
    until_acknowledged(writer)
    assert writer.rebuilds == 1
    assert writer.pending == 0


def test_a_principal_that_may_not_write_idempotently_is_told_and_recovers(
    kafka: MockKafka,
) -> None:
    kafka.answer_with(INIT_PRODUCER_ID, *[KafkaError.CLUSTER_AUTHORIZATION_FAILED] * 2)
    properties = {"bootstrap.servers": kafka.bootstrap_servers}
    writer = KafkaWriter(properties, TOPIC)
    until_acknowledged(writer)
    assert writer.rebuilds == 2
    writer.close(ACK_S)


def test_no_broker_is_unavailable_within_the_deadline() -> None:
    writer = KafkaWriter(NOWHERE, TOPIC)
    asked = time.monotonic()
    assert isinstance(append(writer), LogUnavailable)
    assert time.monotonic() - asked < 0.5 + 1 + SLACK_S
    writer.close(0)


def test_a_full_queue_is_unavailable_at_once_and_does_not_block() -> None:
    properties = {**NOWHERE, "queue.buffering.max.messages": 10}
    writer = KafkaWriter({**properties, "delivery.timeout.ms": 60_000}, TOPIC)
    asked = time.monotonic()
    futures = [writer.append(b"k", b"v", ()) for _ in range(15)]
    assert time.monotonic() - asked < 1
    full = [future for future in futures if future.done()]
    assert futures[10:] == full
    for future in full:
        assert isinstance(future.exception(), LogUnavailable)
    assert writer.pending == 10
    assert writer.close(0) == 10


def test_closing_answers_every_append_also_those_it_gives_up() -> None:
    writer = KafkaWriter({**NOWHERE, "delivery.timeout.ms": 60_000}, TOPIC)
    futures = [writer.append(b"k", b"v", ()) for _ in range(100)]
    asked = time.monotonic()
    assert writer.close(0.3) == 100
    assert time.monotonic() - asked < 2
    for future in futures:
        assert isinstance(future.exception(0), LogUnavailable)


def test_appends_that_race_with_closing_are_all_answered(kafka: MockKafka) -> None:
    for _ in range(5):
        writer = KafkaWriter({"bootstrap.servers": kafka.bootstrap_servers}, TOPIC)
        assert append(writer) is None
        futures: list[Future[Lsn]] = []
        threads = [Thread(target=append_many, args=(writer, futures)) for _ in "ab"]
        for thread in threads:
            thread.start()
        writer.close(ACK_S)
        for thread in threads:
            thread.join()
        errors = [future.exception(0) for future in futures]
        assert len(errors) == 4_000
        assert {type(error) for error in errors} <= {type(None), LogUnavailable}
        assert writer.pending == 0


def until_acknowledged(writer: KafkaWriter) -> None:
    deadline = time.monotonic() + ACK_S
    while append(writer) is not None:
        assert time.monotonic() < deadline


def append_many(writer: KafkaWriter, futures: list[Future[Lsn]]) -> None:
    futures.extend(writer.append(b"k", b"v", ()) for _ in range(2_000))
