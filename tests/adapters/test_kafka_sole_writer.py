"""The sole writer on real Kafka: by transactions of one id."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import ensure_topics
from cachemind.adapters.kafka_transaction import KafkaSoleWriter
from cachemind.core.topics import Mode, topics
from cachemind_services.broker import EmbeddedBroker
from tests.contracts.sole_writer_contract import ONE, SoleWriterContract

pytestmark = pytest.mark.broker


class KafkaPlace:
    """A topic on the session's broker."""

    def __init__(self, broker: EmbeddedBroker, prefix: str, opened: ExitStack) -> None:
        self._kafka = {"bootstrap.servers": broker.bootstrap_servers}
        self._topic = topics(3, Mode.DEVELOPMENT, prefix).audit
        self._id = f"{prefix}.1"
        self._opened = opened
        ensure_topics(self._kafka, [self._topic])

    def writer(self) -> KafkaSoleWriter:
        ours = KafkaSoleWriter(
            self._kafka, self._topic.name, self._id, partition=ONE, timeout_s=20
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
