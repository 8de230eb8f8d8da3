"""One writer of one partition: whoever took over last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import ensure_topics
from cachemind.adapters.kafka_transaction import KafkaSoleWriter
from cachemind.core.topics import Mode, topics
from cachemind.errors import CacheError, LogTakenOver, LogUnavailable
from cachemind.types import Partition
from cachemind_services.broker import EmbeddedBroker

pytestmark = pytest.mark.broker
ONE = Partition(1)


class Place:
    """A topic, and writers of its second partition."""

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


@pytest.fixture
def place(broker: EmbeddedBroker, topic_prefix: str) -> Iterator[Place]:
    with ExitStack() as opened:
        yield Place(broker, topic_prefix, opened)


def append(writer: KafkaSoleWriter, *values: bytes) -> list[int]:
    lsns = writer.append_all([(b"any key", value, ()) for value in values], _agree)
    assert {lsn.partition for lsn in lsns} == {ONE}
    return [lsn.offset for lsn in lsns]


def _agree() -> None: ...


class Objection(CacheError):
    """What a caller has against a commit."""


def _object() -> None:
    raise Objection


def test_it_appends_to_its_partition_whatever_the_key(place: Place) -> None:
    writer = place.writer()
    writer.take_over()
    first, second = append(writer, b"a", b"b")
    assert second == first + 1
    append(writer, b"c")
    assert place.committed() == [b"a", b"b", b"c"]


def test_it_appends_nothing_before_it_took_over(place: Place) -> None:
    writer = place.writer()
    with pytest.raises(LogUnavailable, match="has not taken over"):
        append(writer, b"a")
    assert place.committed() == []


def test_an_objection_takes_all_away_and_the_writer_must_take_over_again(
    place: Place,
) -> None:
    writer = place.writer()
    writer.take_over()
    with pytest.raises(Objection):
        writer.append_all([(b"", b"a", ()), (b"", b"b", ())], _object)
    with pytest.raises(LogUnavailable, match="has not taken over"):
        append(writer, b"c")
    writer.take_over()
    append(writer, b"d")
    assert place.committed() == [b"d"]


def test_an_older_writer_is_ended_even_in_the_middle(place: Place) -> None:
    older, newer = place.writer(), place.writer()
    older.take_over()
    append(older, b"a")
    with pytest.raises(LogTakenOver):
        older.append_all([(b"", b"late", ())], newer.take_over)
    assert place.committed() == [b"a"]
    append(newer, b"b")
    with pytest.raises(LogUnavailable):
        append(older, b"later")
    assert place.committed() == [b"a", b"b"]
