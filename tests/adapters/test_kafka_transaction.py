"""Several records as one Kafka transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import ensure_topics
from cachemind.adapters.kafka_transaction import KafkaTransactions
from cachemind.core.topics import MAX_RECORD_BYTES, Mode, topics
from cachemind.errors import LogRejected, LogUnavailable
from cachemind.types import Partition
from cachemind_services.broker import EmbeddedBroker

pytestmark = pytest.mark.broker
PARTITIONS = 3


@pytest.fixture
def place(broker: EmbeddedBroker, topic_prefix: str) -> tuple[dict[str, str], str]:
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    table = topics(PARTITIONS, Mode.DEVELOPMENT, topic_prefix)
    ensure_topics(servers, [table.wal])
    return servers, table.wal.name


@pytest.fixture
def writer(
    place: tuple[dict[str, str], str], topic_prefix: str
) -> Iterator[KafkaTransactions]:
    with closing(KafkaTransactions(*place, f"{topic_prefix}.operator")) as ours:
        yield ours


def committed(place: tuple[dict[str, str], str]) -> list[tuple[str, bytes | None]]:
    """Return (LSN, value) of all that a reader of committed records sees."""
    with closing(KafkaReader(*place)) as reader:
        return [
            (str(record.lsn), record.value)
            for partition in map(Partition, range(PARTITIONS))
            for batch in reader.read(partition, *reader.bounds(partition))
            for record in batch
        ]


def test_all_records_are_there_at_the_lsns_that_were_told(
    place: tuple[dict[str, str], str], writer: KafkaTransactions
) -> None:
    records = [(f"n{k}".encode(), f"v{k}".encode(), ()) for k in range(6)]
    lsns = writer.append_all(records)
    again = writer.append_all([(b"n0", b"later", ())])
    found = dict(committed(place))
    assert {found[str(lsn)] for lsn in lsns} == {value for _, value, _ in records}
    assert len({lsn.partition for lsn in lsns}) > 1
    assert found[str(again[0])] == b"later"


def test_one_record_that_is_refused_takes_all_with_it(
    place: tuple[dict[str, str], str], writer: KafkaTransactions
) -> None:
    too_large = b"x" * (MAX_RECORD_BYTES + 1)
    with pytest.raises(LogRejected):
        writer.append_all([(b"n0", b"v0", ()), (b"n1", too_large, ())])
    assert committed(place) == []
    writer.append_all([(b"n0", b"after", ())])
    assert [value for _, value in committed(place)] == [b"after"]


def test_a_newer_one_with_the_same_id_ends_an_older_one(
    place: tuple[dict[str, str], str], writer: KafkaTransactions, topic_prefix: str
) -> None:
    writer.append_all([(b"n0", b"first", ())])
    with closing(KafkaTransactions(*place, f"{topic_prefix}.operator")) as newer:
        newer.append_all([(b"n0", b"second", ())])
        with pytest.raises(LogUnavailable):
            writer.append_all([(b"n0", b"third", ())])
    assert [value for _, value in committed(place)] == [b"first", b"second"]
    writer.append_all([(b"n0", b"fourth", ())])
    assert [value for _, value in committed(place)][-1] == b"fourth"


def test_without_a_broker_it_is_unavailable_in_time(topic_prefix: str) -> None:
    servers = {"bootstrap.servers": "127.0.0.1:1"}
    ours = KafkaTransactions(servers, "t", topic_prefix, timeout_s=0.5)
    with closing(ours), pytest.raises(LogUnavailable):
        ours.append_all([(b"n0", b"v", ())])
