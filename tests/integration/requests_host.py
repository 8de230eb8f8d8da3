"""A host that answers commands on Kafka, and a client that needs no library of ours."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
from confluent_kafka import Consumer, Producer

from tests.integration.cli_host import CliHost

RELEASED = Path(__file__).parents[2] / "schemas" / "cachemind_schemas" / "released"


def schema(family: str) -> Any:
    return fastavro.parse_schema(
        json.loads((RELEASED / family / "0.3.0.avsc").read_text()), named_schemas={}
    )


COMMAND, REPLY = schema("commands"), schema("replies")

SINGLE_OBJECT = b"\xc3\x01" + bytes.fromhex(
    fastavro.schema.fingerprint(
        fastavro.schema.to_parsing_canonical_form(COMMAND), "CRC-64-AVRO"
    )
)


def framed(value: dict[str, Any]) -> bytes:
    """Return a command in Avro single-object encoding; a body by itself rolls back."""
    body = value["body"]
    if isinstance(body, dict):
        value = value | {"body": ("cachemind.v1.Rollback", body)}
    out = BytesIO()
    out.write(SINGLE_OBJECT)
    fastavro.schemaless_writer(out, COMMAND, value)
    return out.getvalue()


@dataclass
class Answer:
    """One answer as it came."""

    correlation_id: str
    headers: dict[str, bytes]
    value: dict[str, Any]
    kind: str
    body: dict[str, Any]
    raw: bytes


@dataclass
class Client:
    """Sends commands and collects the answers on a topic.

    `grant` is `NAMESPACE.ROLE`, whose topics it uses; without it those that all share.
    `kafka` says how to come in, in librdkafka's words.
    """

    servers: str
    prefix: str
    namespace: str
    answers: list[Answer] = field(default_factory=list)
    grant: str = ""
    kafka: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    group: str = ""

    def __post_init__(self) -> None:
        came = {"bootstrap.servers": self.servers, **self.kafka}
        self.producer = Producer({**came, "partitioner": "murmur2_random"})
        self.consumer = Consumer(
            {
                **came,
                "group.id": self.group or f"client-{uuid.uuid4().hex}",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self.consumer.subscribe([self.replies])

    @property
    def requests(self) -> str:
        """Return the topic that its commands go to."""
        return ".".join(filter(None, (self.prefix, "requests", self.grant)))

    @property
    def replies(self) -> str:
        """Return the topic that it is answered on."""
        return ".".join(filter(None, (self.prefix, "replies", self.grant)))

    def send(
        self,
        request_id: uuid.UUID | None = None,
        *,
        namespace: str | None = None,
        headers: dict[str, bytes] | None = None,
        raw: bytes | None = None,
        key: str | None = None,
        **body: Any,
    ) -> str:
        """Send a `Rollback`; return its correlation id, which is the request's id."""
        return self.command(
            "Rollback",
            request_id,
            namespace=namespace,
            headers=headers,
            raw=raw,
            key=key,
            **body,
        )

    def command(
        self,
        command: str,
        request_id: uuid.UUID | None = None,
        /,
        *,
        namespace: str | None = None,
        headers: dict[str, bytes] | None = None,
        raw: bytes | None = None,
        key: str | None = None,
        flush: bool = True,
        **body: Any,
    ) -> str:
        """Send a command; return its correlation id, which is the request's id."""
        request_id = request_id or uuid.uuid4()
        name = namespace or self.namespace
        value = {
            "request_id": request_id.bytes,
            "namespace": name,
            "body": (f"cachemind.v1.{command}", body),
        }
        sent = {
            "reply-to": self.replies.encode(),
            "correlation-id": str(request_id).encode(),
        } | (headers or {})
        self.producer.produce(
            self.requests,
            framed(value) if raw is None else raw,
            key or name,
            headers={n: v for n, v in sent.items() if v},
        )
        if flush:
            self.producer.flush(30)
        return str(request_id)

    def poll(self, for_s: float = 0.1) -> None:
        """Take in what has come."""
        message = self.consumer.poll(for_s)
        if message is None or message.error() is not None:
            return
        raw = message.value() or b""
        value: Any = fastavro.schemaless_reader(
            BytesIO(raw[10:]),
            REPLY,
            return_record_name=True,
            return_record_name_override=True,
        )
        kind, body = value["body"]
        headers: Any = dict(message.headers() or [])
        self.answers.append(
            Answer(
                headers["correlation-id"].decode(),
                headers,
                value,
                kind.rpartition(".")[2],
                body,
                raw,
            )
        )

    def to(self, correlation_id: str, timeout_s: float = 60.0) -> Answer:
        """Return the answer to a command."""
        deadline = time.monotonic() + timeout_s
        while True:
            for one in self.answers:
                if one.correlation_id == correlation_id:
                    return one
            assert time.monotonic() < deadline, "no answer came"
            self.poll()

    def ask(self, **body: Any) -> Answer:
        return self.to(self.send(**body))

    def want(self, command: str, /, **body: Any) -> Answer:
        """Send a command of the cache and return its answer."""
        return self.to(self.command(command, **body))

    def quiet(self, for_s: float = 1.5) -> list[Answer]:
        """Return all answers, once none has come for a while."""
        last = time.monotonic()
        while time.monotonic() - last < for_s:
            before = len(self.answers)
            self.poll()
            if len(self.answers) > before:
                last = time.monotonic()
        return self.answers

    def close(self) -> None:
        self.consumer.close()


@dataclass
class Answering:
    """`cachemind requests` processes of one host."""

    host: CliHost
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def log_path(self) -> Path:
        return self.host.data_dir / "requests.log"

    def start(self, failpoint: str = "") -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "cachemind_services.cli.main", "requests"]
        if failpoint:
            argv += ["--failpoint", failpoint]
        with self.log_path.open("ab") as log:
            process = subprocess.Popen(
                argv, env=self.host.environ(), stdout=log, stderr=log
            )
        self.running.append(process)
        return process

    def output(self) -> str:
        return self.log_path.read_text(errors="replace")

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0, self.output()

    def close(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.kill()
                process.wait()


@contextmanager
def answering(host: CliHost) -> Iterator[Answering]:
    found = Answering(host)
    try:
        yield found
    finally:
        found.close()


@contextmanager
def client(host: CliHost, namespace: str) -> Iterator[Client]:
    with closing(Client(host.bootstrap_servers, host.prefix, namespace)) as found:
        yield found


def records(host: CliHost, topic: str) -> Sequence[Any]:
    """Return every committed record of a topic."""
    from cachemind.adapters.kafka_reader import KafkaReader
    from cachemind.types import Partition

    with closing(KafkaReader(host.kafka, f"{host.prefix}.{topic}")) as reader:
        alone = topic == "dlq" or "." in topic
        count = 1 if alone else len(host.partitions)
        return [
            record
            for partition in map(Partition, range(count))
            for batch in reader.read(partition, *reader.bounds(partition))
            for record in batch
        ]
