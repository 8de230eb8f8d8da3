"""The sole writer on real Kafka: by transactions of one id."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import ensure_topics
from cachemind.adapters.kafka_transaction import KafkaSoleWriter
from cachemind.core.topics import Mode, topics
from cachemind.errors import LogRejected
from cachemind_services.broker import EmbeddedBroker
from tests.contracts.sole_writer_contract import (
    ONE,
    SoleWriterContract,
    append,
)

pytestmark = pytest.mark.broker


class KafkaPlace:
    """A topic on the session's broker."""

    def __init__(self, broker: EmbeddedBroker, prefix: str, opened: ExitStack) -> None:
        self._kafka = {"bootstrap.servers": broker.bootstrap_servers}
        self._topic = topics(3, Mode.DEVELOPMENT, prefix).audit
        self._id = f"{prefix}.1"
        self._opened = opened
        self.largest = self._topic.max_message_bytes
        ensure_topics(self._kafka, [self._topic])

    def writer(self, **more: str) -> KafkaSoleWriter:
        kafka = {**self._kafka, **more}
        ours = KafkaSoleWriter(
            kafka, self._topic.name, self._id, partition=ONE, timeout_s=20
        )
        return self._opened.enter_context(closing(ours))

    def committed(self) -> list[bytes | None]:
        with closing(KafkaReader(self._kafka, self._topic.name)) as reader:
            batches = reader.read(ONE, *reader.bounds(ONE))
            return [record.value for batch in batches for record in batch]


class TestKafkaSoleWriter(SoleWriterContract):
    @pytest.fixture
    def place(self, broker: EmbeddedBroker, topic_prefix: str) -> Iterator[KafkaPlace]:
        with ExitStack() as opened:
            yield KafkaPlace(broker, topic_prefix, opened)

    def test_where_one_of_many_is_not_taken_none_is(self, place: KafkaPlace) -> None:
        # One record a request, and ours takes what the topic does not.
        larger = {"message.max.bytes": str(2 * place.largest)}
        writer = place.writer(**{"batch.num.messages": "1", **larger})
        writer.take_over()
        values = [bytes([number]) * 10 for number in range(9)]
        values[4] = bytes(place.largest + 1_000)
        with pytest.raises(LogRejected):
            append(writer, *values)
        assert place.committed() == []
        writer.take_over()
        first, *rest = append(writer, *values[:4], *values[5:])
        assert rest == list(range(first + 1, first + 8))
        assert place.committed() == [*values[:4], *values[5:]]
