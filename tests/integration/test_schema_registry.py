"""Records in Confluent's framing: a registry that is there, goes away and comes back.

The registry is one of ours that follows the documented interface; the slow test asks a
real one the same.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.adapters.registry import RegistryIds
from cachemind.codec import Codec
from cachemind.errors import LogRejected
from cachemind.types import Partition
from cachemind_schemas.loader import released_of
from cachemind_services.broker import EmbeddedBroker
from tests.bench.running import free_port
from tests.integration.apicurio import apicurio, demand
from tests.integration.cli_host import PARTITIONS, CliHost, cli_host
from tests.integration.requests_host import answering, client, records
from tests.integration.rollback_host import Shop
from tests.integration.serving import Serving, eventually, run_cli, serving
from tests.schema_registry import BACKWARD, serving_registry
from tests.upstreams import ScriptedUpstream, served
from tests.wal_events import ALPHA, envelope, stored

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]
OTHER = '{"type":"record","name":"Other","namespace":"x","fields":[]}'


Demand = Callable[[str, str], None]
MakeRegistry = Callable[[Path], AbstractContextManager[tuple[str, Demand]]]


@contextmanager
def ours(_: Path) -> Iterator[tuple[str, Demand]]:
    """Yield a small registry's URL, and how to demand compatibility."""
    with serving_registry() as registry:
        yield registry.url, registry.demand


@contextmanager
def real(folder: Path) -> Iterator[tuple[str, Demand]]:
    """Yield a real registry's URL, and how to demand compatibility."""
    with apicurio(folder / "apicurio.log") as url:
        yield url, partial(demand, url)


def wal_of(servers: str, topic: str, partitions: int) -> list[bytes]:
    """Return the value of every record."""
    reader = KafkaReader({"bootstrap.servers": servers}, topic)
    with closing(reader):
        return [
            record.value or b""
            for partition in map(Partition, range(partitions))
            for batch in reader.read(partition, *reader.bounds(partition))
            for record in batch
        ]


def read_by_confluent(url: str, topic: str, records: list[bytes]) -> list[Any]:
    """Return the records as Confluent's own deserialiser reads them."""
    context = SerializationContext(topic, MessageField.VALUE)
    with SchemaRegistryClient({"url": url}) as client:
        deserialise = AvroDeserializer(client)
        return [deserialise(record, context) for record in records]


def ids_of(url: str, topic: str) -> AbstractContextManager[RegistryIds]:
    """Return the ids of a topic's values, closed at the end."""
    return closing(RegistryIds(url, topic, timeout_s=30))


def test_a_registry_that_is_away_costs_hits_and_no_answer(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    flags = ("--encoder", "off", "--schema-registry-url", url)
    with (
        served(ScriptedUpstream()) as upstream,
        serving(upstream, tmp_path, *flags) as host,
        Shop(host.url) as shop,
    ):
        assert shop.ask("before")[0] == "bypass"
        with serving_registry(port) as registry:
            eventually(lambda: shop.ask("first")[0] == "hit_exact", 60)
            # Whoever answers commands registers theirs as well, when it comes to it.
            assert "cachemind.wal-value" in registry.subjects
            assert set(registry.subjects) <= {
                f"cachemind.{topic}-value" for topic in ("wal", "requests", "replies")
            }
            check_records(url, tmp_path)
        # Away again: what was learnt is not forgotten.
        assert shop.ask("second")[0] == "miss"
        assert shop.ask("second")[0] == "hit_exact"
        shop.settle(2)
        restart(host, "materializer")
        shop.put("third", "answer")
        assert shop.ask("third") == ("hit_exact", "answer")
        assert shop.stats()["version"] == 2, "nothing can be folded yet"
        with serving_registry(port, prepare=registry.handed_to):
            shop.settle(3)
            done = run_cli("doctor", "--rebuild", f"--data-dir={tmp_path}", *flags[2:])
            assert done.returncode == 0, done.stdout


def test_an_incompatible_schema_stops_the_start_and_nothing_is_written(
    broker: EmbeddedBroker, topic_prefix: str, tmp_path: Path
) -> None:
    with serving_registry() as registry:
        subject = f"{topic_prefix}.wal-value"
        registry.register(subject, {"schema": OTHER})
        registry.demand(subject, BACKWARD)
        with cli_host(
            broker.bootstrap_servers,
            topic_prefix,
            tmp_path / "host",
            schema_registry_url=registry.url,
        ) as host:
            said = host.run("tail", "--no-follow", code=1).stderr
            assert "409" in said
            assert "incompatible" in said
            assert registry.subjects[subject] == [1]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(ours, id="ours", marks=pytest.mark.slow),
        pytest.param(
            real,
            id="apicurio",
            marks=[pytest.mark.slow, pytest.mark.timeout(900)],
        ),
    ],
)
def test_a_log_is_written_evolved_and_folded_through_a_registry(
    make: MakeRegistry, broker: EmbeddedBroker, topic_prefix: str, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    with ExitStack() as opened:
        url, demand = opened.enter_context(make(tmp_path))
        # 1. Each version that was released of one family: new ones, in this order.
        ids = opened.enter_context(ids_of(url, f"{topic_prefix}.requests"))
        demand(f"{topic_prefix}.requests-value", BACKWARD)
        released = sorted(released_of("commands"), key=lambda each: each.version)
        known = [ids.id_for(each.text) for each in released]
        assert len(set(known)) == len(released) > 1
        assert [json.loads(ids.schema_for(each)) for each in known] == [
            json.loads(each.text) for each in released
        ]
        # 2. What no reader of the others could read is refused, and no version.
        with pytest.raises(LogRejected, match="409"):
            ids.id_for(OTHER)
        with pytest.raises(LogRejected, match="422"):
            ids.id_for('{"type":"record"')
        # 3. A log in Confluent's framing is folded, and read by Confluent's own.
        with cli_host(
            servers, topic_prefix, tmp_path / "host", schema_registry_url=url
        ) as host:
            host.start()
            host.wait(lambda: "live" in host.output(), 120)
            append(host, Codec(opened.enter_context(ids_of(url, host.wal))), 5)
            host.wait(lambda: host.state().version == 5)
            records = wal_of(servers, host.wal, PARTITIONS)
            found = read_by_confluent(url, host.wal, records)
            assert [each["body"]["prompt"] for each in found] == [
                f"prompt {number}" for number in range(5)
            ]
            assert host.run("doctor", "--rebuild").returncode == 0


def test_a_client_of_the_registry_is_answered_in_its_own_framing(
    broker: EmbeddedBroker, topic_prefix: str, tmp_path: Path
) -> None:
    with (
        serving_registry() as registry,
        cli_host(
            broker.bootstrap_servers,
            topic_prefix,
            tmp_path / "host",
            schema_registry_url=registry.url,
        ) as host,
        answering(host) as desk,
        client(host, ALPHA) as asker,
        SchemaRegistryClient({"url": registry.url}) as confluent,
    ):
        host.start()
        desk.start()
        topic = f"{topic_prefix}.requests"
        eventually(lambda: f"{topic_prefix}.replies-value" in registry.subjects, 60)
        raw, request_id = look_up_by_confluent(confluent, topic)
        sent = asker.send(raw=raw)
        eventually(lambda: len(records(host, "replies")) == 1, 60)
        (reply,) = records(host, "replies")
        assert dict(reply.headers)["correlation-id"] == sent.encode()
        assert (raw[:1], reply.value[:1]) == (b"\x00", b"\x00")
        (told,) = read_by_confluent(
            registry.url, f"{topic_prefix}.replies", [reply.value]
        )
        assert told["body"]["outcome"] == "miss"
        assert told["request_id"] == request_id
        # Who asks by the fingerprint is answered by the fingerprint.
        second = asker.send(to_version=0)
        eventually(lambda: len(records(host, "replies")) == 2, 60)
        by_id = {one.key.decode(): one.value for one in records(host, "replies")}
        assert by_id[sent][:1] == b"\x00"
        assert by_id[second][:2] == b"\xc3\x01"


def look_up_by_confluent(
    confluent: SchemaRegistryClient, topic: str
) -> tuple[bytes, bytes]:
    """Return a command as Confluent's own serialiser writes it, and its id."""
    known = confluent.get_latest_version(f"{topic}-value").schema
    serialise = AvroSerializer(confluent, known.schema_str)
    request = b'{"model":"m","messages":[{"role":"user","content":"?"}]}'
    asked = {"request": request, "cache_control": "", "mode": "", "threshold": None}
    request_id = uuid.uuid4().bytes
    value = {
        "request_id": request_id,
        "namespace": ALPHA,
        "body": ("cachemind.v1.Lookup", asked),
    }
    raw = serialise(value, SerializationContext(topic, MessageField.VALUE))
    assert raw is not None
    return raw, request_id


def append(host: CliHost, codec: Codec, count: int) -> None:
    writer = KafkaWriter(host.kafka, host.wal)
    for number in range(count):
        record = codec.encode(envelope(number, stored(number)))
        assert record[:1] == b"\x00"
        writer.append(ALPHA.encode(), record, ()).result(30)
    writer.close(10)


def check_records(url: str, data_dir: Path) -> None:
    servers = EmbeddedBroker(data_dir / "broker").status().bootstrap_servers
    assert servers is not None
    records = wal_of(servers, "cachemind.wal", 4)
    assert {record[:1] for record in records} == {b"\x00"}
    found = read_by_confluent(url, "cachemind.wal", records)
    assert {each["namespace"] for each in found} == {"default"}


def restart(host: Serving, role: str) -> None:
    gone = host.kill(role)
    eventually(lambda: host.runs(role) and host.pid_of(role) != gone, 60)
