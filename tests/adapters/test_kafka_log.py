from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from threading import Timer

import pytest
from confluent_kafka import Producer, TopicPartition

from cachemind.adapters.kafka_admin import KafkaAdmin, answer
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import ensure_topics
from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.core.topics import Mode, topics
from cachemind.errors import LogUnavailable, OffsetOutOfRange
from cachemind.ports import LogReader
from cachemind.types import Lsn, Offset
from cachemind_services.broker import EmbeddedBroker
from tests.contracts.log_contract import (
    ACK_S,
    HOME,
    KEY,
    PARTITIONS,
    LogContract,
    append,
    flatten,
    values,
)
from tests.freezing import freeze

pytestmark = pytest.mark.broker

STALL_S = 2.0
SLACK_S = 3.0
"""What a busy machine may add to a deadline."""
StartBroker = Callable[[], EmbeddedBroker]
Properties = dict[str, str | int | float | bool]


@pytest.fixture
def properties(broker: EmbeddedBroker) -> Properties:
    return {"bootstrap.servers": broker.bootstrap_servers}


@pytest.fixture
def topic(properties: Properties, topic_prefix: str) -> str:
    return create_wal(properties, topic_prefix)


@pytest.fixture
def writer(properties: Properties, topic: str) -> Iterator[KafkaWriter]:
    writer = KafkaWriter(properties, topic)
    yield writer
    writer.close(ACK_S)


@pytest.fixture
def reader(properties: Properties, topic: str) -> Iterator[KafkaReader]:
    reader = KafkaReader(properties, topic, stall_s=STALL_S)
    yield reader
    reader.close()


def create_wal(properties: Properties, prefix: str) -> str:
    wal = topics(PARTITIONS, Mode.DEVELOPMENT, prefix).wal
    ensure_topics(properties, [wal], deadline_s=ACK_S)
    return wal.name


class TestKafkaLog(LogContract):
    pass


# ---- transactions -------------------------------------------------------------------


class Transactions:
    """A client that writes to the WAL in transactions, as an operator's may."""

    def __init__(self, properties: Properties, topic: str) -> None:
        self._topic = topic
        self._producer = Producer({**properties, "transactional.id": f"{topic}-tx"})
        self._producer.init_transactions(ACK_S)

    def begin(self, *values: bytes) -> None:
        self._producer.begin_transaction()
        for value in values:
            self._producer.produce(self._topic, value, KEY, partition=HOME)
        self._producer.flush(ACK_S)

    def commit(self, *values: bytes) -> None:
        self.begin(*values)
        self._producer.commit_transaction(ACK_S)

    def abort(self, *values: bytes) -> None:
        self.begin(*values)
        self._producer.abort_transaction(ACK_S)


@pytest.fixture
def transactions(properties: Properties, topic: str) -> Transactions:
    return Transactions(properties, topic)


def read_all(reader: LogReader) -> list[bytes | None]:
    return values(reader.read(HOME, *reader.bounds(HOME)))


def test_only_committed_records_are_read_and_markers_end_the_range(
    transactions: Transactions, writer: KafkaWriter, reader: KafkaReader
) -> None:
    append(writer, b"plain")
    transactions.commit(b"c1", b"c2")
    transactions.abort(b"a1", b"a2")
    append(writer, b"between")
    transactions.commit(b"c3")
    transactions.abort(b"a3")
    first, end = reader.bounds(HOME)
    records = flatten(reader.read(HOME, first, end))
    assert [r.value for r in records] == [b"plain", b"c1", b"c2", b"between", b"c3"]
    # One offset a marker and one an aborted record are not there.
    assert end - first == 5 + 3 + 4


def test_a_range_of_nothing_but_aborted_records_ends(
    transactions: Transactions, reader: KafkaReader
) -> None:
    transactions.abort(b"a1", b"a2")
    assert reader.bounds(HOME) == (0, 3)
    assert read_all(reader) == []


@pytest.mark.parametrize("end", range(1, 8))
def test_a_range_may_end_anywhere_among_markers(
    transactions: Transactions, writer: KafkaWriter, reader: KafkaReader, end: int
) -> None:
    transactions.abort(b"a1")  # offsets 0, marker 1
    transactions.commit(b"c1")  # 2, marker 3
    append(writer, b"plain")  # 4
    transactions.abort(b"a2")  # 5, marker 6
    there = {2: b"c1", 4: b"plain"}
    expected = [value for offset, value in there.items() if offset < end]
    assert values(reader.read(HOME, Offset(0), Offset(end))) == expected


def test_an_open_transaction_hides_what_comes_after_it(
    transactions: Transactions, writer: KafkaWriter, reader: KafkaReader
) -> None:
    append(writer, b"before")
    transactions.begin(b"open")
    append(writer, b"behind")
    assert reader.bounds(HOME) == (0, 1)
    assert read_all(reader) == [b"before"]


# ---- retention ----------------------------------------------------------------------


def test_what_retention_deleted_cannot_be_read(
    properties: Properties, topic: str, writer: KafkaWriter, reader: KafkaReader
) -> None:
    append(writer, b"1", b"2", b"3")
    admin = KafkaAdmin(properties)
    place = TopicPartition(topic, HOME, 2)
    admin.ask(
        "delete records",
        lambda client, limit_s: answer(client.delete_records([place])[place], limit_s),
    )
    admin.close()
    assert reader.bounds(HOME) == (2, 3)
    with pytest.raises(OffsetOutOfRange) as caught:
        flatten(reader.read(HOME, Offset(0), Offset(3)))
    assert (caught.value.asked, caught.value.first) == (0, 2)
    assert read_all(reader) == [b"3"]


# ---- outages ------------------------------------------------------------------------


def test_appends_fail_in_time_while_kafka_is_stopped_and_work_again_after(
    start_broker: StartBroker, topic_prefix: str
) -> None:
    broker = start_broker()
    properties: Properties = {
        "bootstrap.servers": broker.bootstrap_servers,
        "delivery.timeout.ms": 1_000,
    }
    topic = create_wal(properties, topic_prefix)
    writer = KafkaWriter(properties, topic)
    reader = KafkaReader(properties, topic, stall_s=STALL_S, request_s=STALL_S)
    until_acknowledged(writer, b"before")
    broker.stop()

    asked = time.monotonic()
    error = writer.append(KEY, b"lost", ()).exception(ACK_S)
    assert isinstance(error, LogUnavailable)
    # librdkafka looks for late records once a second.
    assert time.monotonic() - asked < 1 + 1 + SLACK_S
    with pytest.raises(LogUnavailable):
        reader.bounds(HOME)
    with pytest.raises(LogUnavailable):
        flatten(reader.read(HOME, Offset(0), Offset(1)))

    broker.start()
    broker.wait_ready()
    until_acknowledged(writer, b"after")
    assert read_all(reader) == [b"before", b"after"]
    assert writer.close(ACK_S) == 0
    reader.close()


def test_a_broker_that_hangs_is_unavailable_in_time(
    start_broker: StartBroker, topic_prefix: str
) -> None:
    broker = start_broker()
    properties: Properties = {
        "bootstrap.servers": broker.bootstrap_servers,
        "delivery.timeout.ms": 1_000,
    }
    topic = create_wal(properties, topic_prefix)
    writer = KafkaWriter(properties, topic)
    reader = KafkaReader(properties, topic, stall_s=STALL_S)
    until_acknowledged(writer, b"before")
    freeze(broker.pid)
    try:
        asked = time.monotonic()
        late = writer.append(KEY, b"late", ())
        assert isinstance(late.exception(ACK_S), LogUnavailable)
        assert time.monotonic() - asked < 1 + 1 + SLACK_S
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    until_acknowledged(writer, b"after")
    # Unavailable does not say which: the record may be on the log, before the next.
    assert read_all(reader) in (
        [b"before", b"late", b"after"],
        [b"before", b"after"],
    )
    writer.close(ACK_S)
    reader.close()


def test_retries_into_a_broker_that_hung_change_no_order_and_repeat_nothing(
    start_broker: StartBroker, topic_prefix: str
) -> None:
    broker = start_broker()
    properties: Properties = {
        "bootstrap.servers": broker.bootstrap_servers,
        "delivery.timeout.ms": 60_000,
        # Requests time out and go out again, though the broker has them.
        "socket.timeout.ms": 500,
        "request.timeout.ms": 500,
        # Small batches, so that many requests are in flight.
        "batch.num.messages": 10,
    }
    topic = create_wal(properties, topic_prefix)
    writer = KafkaWriter(properties, topic)
    reader = KafkaReader(properties, topic)
    sent = [b"%05d" % i for i in range(6_000)]
    futures: list[Future[Lsn]] = []
    for number, value in enumerate(sent):
        if number % 2_000 == 1_000:
            futures[number // 2].result(ACK_S)  # the stream is under way
            hang(broker.pid, for_s=1.5)
        futures.append(writer.append(KEY, value, ()))
    offsets = [future.result(ACK_S).offset for future in futures]
    assert offsets == list(range(len(sent)))
    assert read_all(reader) == sent
    writer.close(ACK_S)
    reader.close()


def hang(pid: int, for_s: float) -> None:
    """Stop a process and let it go on later, in the background."""
    freeze(pid)
    Timer(for_s, os.kill, (pid, signal.SIGCONT)).start()


def until_acknowledged(writer: KafkaWriter, value: bytes) -> None:
    """Append until it works: a broker that has just started may take seconds."""
    deadline = time.monotonic() + ACK_S
    while writer.append(KEY, value, ()).exception(ACK_S) is not None:
        assert time.monotonic() < deadline


def test_a_follower_waits_an_outage_out(
    start_broker: StartBroker, topic_prefix: str
) -> None:
    broker = start_broker()
    properties: Properties = {"bootstrap.servers": broker.bootstrap_servers}
    topic = create_wal(properties, topic_prefix)
    writer = KafkaWriter(properties, topic)
    reader = KafkaReader(properties, topic)
    append(writer, b"before")
    seen: list[bytes | None] = []
    for batch in reader.follow({HOME: Offset(0)}, lambda: len(seen) >= 2):
        seen.extend(values([batch]))
        if seen == [b"before"] and batch:
            broker.stop()
            broker.start()
            broker.wait_ready()
            until_acknowledged(writer, b"after")
    assert seen == [b"before", b"after"]
    writer.close(ACK_S)
    reader.close()
