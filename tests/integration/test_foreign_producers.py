"""Commands from producers that are not librdkafka with its defaults."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped] # no types
from aiokafka.producer import (  # type: ignore[import-untyped]
    message_accumulator,
    producer,
)
from aiokafka.record.default_records import (  # type: ignore[import-untyped]
    _DefaultRecordBatchBuilderPy,
)
from confluent_kafka import Producer

from cachemind.agents.any_header import TOO_LARGE
from cachemind.agents.unpacking import MOST_BYTES
from cachemind.core.partitioner import partition_of
from cachemind.core.topics import MAX_RECORD_BYTES
from cachemind_services.broker import EmbeddedBroker
from tests.integration.cli_host import PARTITIONS, CliHost, cli_host
from tests.integration.requests_host import Client, answering, records
from tests.wal_events import ALPHA

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]
CODECS = ("gzip", "snappy", "lz4", "zstd")
REQUEST = b'{"model": "m", "messages": [{"role": "user", "content": "q"}]}'
NO_TEXT = b"\xff\xfename"
HOME = partition_of(ALPHA.encode(), PARTITIONS)


class Raw(str):
    """The name of a header, written as `NO_TEXT`."""

    def encode(self, *_: object) -> bytes:
        return NO_TEXT


@pytest.fixture
def host(
    broker: EmbeddedBroker, topic_prefix: str, tmp_path: Path
) -> Iterator[CliHost]:
    with cli_host(broker.bootstrap_servers, topic_prefix, tmp_path / "h") as running:
        running.start()
        running.wait(lambda: "live" in running.output())
        yield running


async def send_with_no_text(servers: str, topic: str) -> None:
    sender = AIOKafkaProducer(bootstrap_servers=servers)
    await sender.start()
    try:
        await sender.send_and_wait(topic, b"x", b"k", headers=[(Raw("name"), b"v")])
    finally:
        await sender.stop()


def send_packed(servers: str, topic: str, size: int) -> None:
    sender = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": "gzip",
            "message.max.bytes": 2 * size,
        }
    )
    sender.produce(topic, bytes(size), ALPHA, HOME)
    assert sender.flush(30) == 0


def test_how_it_is_compressed_and_what_its_headers_are_called_stops_no_other(
    host: CliHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = host.bootstrap_servers
    client = closing(Client(servers, host.prefix, ALPHA))
    with answering(host) as desk, client as asker:
        process = desk.start()
        for codec in CODECS:
            asker.producer = Producer(
                {
                    "bootstrap.servers": servers,
                    "partitioner": "murmur2_random",
                    "compression.type": codec,
                }
            )
            spaces = b" " * 10_000
            assert asker.want("Lookup", request=REQUEST + spaces).kind == "Answered"

        # Clients in C or Go write any bytes; those in Python text alone.
        for module in (producer, message_accumulator):
            name = "DefaultRecordBatchBuilder"
            monkeypatch.setattr(module, name, _DefaultRecordBatchBuilderPy)
        asyncio.run(send_with_no_text(servers, asker.requests))
        for number in range(2):
            text = REQUEST.replace(b"q", str(number).encode())
            assert asker.want("Lookup", request=text).kind == "Answered"
        (letter,) = records(host, "dlq")
        assert letter.headers[0] == (r"\xff\xfename", b"v")

        # A few kilobytes to the broker.
        for size in (MAX_RECORD_BYTES + 1, MOST_BYTES):
            send_packed(servers, asker.requests, size)
            assert asker.want("Lookup", request=REQUEST).kind == "Answered"
        large, larger = (dict(one.headers) for one in records(host, "dlq")[1:])
        assert b"it takes 4194" in large["cachemind-dlq-detail"]
        assert larger[TOO_LARGE].endswith(b", unpacked")
        desk.stop(process)
