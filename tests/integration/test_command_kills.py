"""kill -9 of the processes that answer commands, and of the broker, under load.

Counted by a consumer that knows nothing of ours: each request id has answers of one
content, its events are on the log once, in the order of the commands of a namespace.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.codec.codec import Codec
from cachemind.errors import LogUnavailable
from cachemind.events import Feedback, Invalidated, Read, Reads, Refused, Stored
from cachemind.ports import LogRecord
from cachemind.types import Partition
from tests.bench.running import free_port
from tests.integration.requests_host import framed
from tests.integration.serving import Serving, eventually, serving
from tests.upstreams import ScriptedUpstream, completion, served

pytestmark = pytest.mark.broker
NAMESPACES = ("default", "shop", "blog", "desk", "mail")
PARTITIONS = 4
WINDOW = 400
"""Commands that are sent and not answered: the load goes on while things die."""


def chat(text: str) -> bytes:
    messages = [{"role": "user", "content": text}]
    return json.dumps({"model": "m", "messages": messages}).encode()


@dataclass
class Sent:
    """A command, and the trace that its events are found by."""

    kind: str
    namespace: str
    trace: bytes
    value: bytes
    request_id: uuid.UUID


@dataclass
class Load:
    """Mixed commands, some sent twice under one id, and their answers."""

    servers: str
    chance: random.Random
    sent: list[Sent] = field(default_factory=list)
    answers: dict[uuid.UUID, list[bytes]] = field(
        default_factory=lambda: defaultdict(list)
    )
    seen: set[tuple[int, int]] = field(default_factory=set)
    twice: int = 0

    def __post_init__(self) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "reconnect.backoff.max.ms": 500,
            }
        )

    def send(self, count: int) -> None:
        for _ in range(count):
            one = self._command()
            self.sent.append(one)
            self._produce(one)
            if self.chance.random() < 0.05:
                self.twice += 1
                self._produce(self.chance.choice(self.sent[-50:]))
        self.producer.poll(0)

    def _command(self) -> Sent:
        prompt = f"question {self.chance.randrange(60)}"
        kind, body = self.chance.choices(
            [
                ("Lookup", {"request": chat(prompt)}),
                ("Complete", {"request": chat(prompt)}),
                ("Put", self._put(prompt)),
                ("Invalidate", {"kind": "tag", "value": f"t{len(self.sent) % 9}"}),
                ("Feedback", self._feedback()),
            ],
            [50, 20, 15, 5, 10],
        )[0]
        request_id, trace = uuid.UUID(int=self.chance.getrandbits(128)), os.urandom(16)
        namespace = self.chance.choice(NAMESPACES)
        value = {
            "request_id": request_id.bytes,
            "namespace": namespace,
            "body": (f"cachemind.v1.{kind}", body),
        }
        return Sent(kind, namespace, trace, framed(value), request_id)

    def _put(self, prompt: str) -> dict[str, Any]:
        answer = completion(json.loads(chat(prompt)), f"put {len(self.sent)}")
        response = json.dumps(answer).encode()
        tags = [f"t{len(self.sent) % 9}"]
        return {"request": chat(prompt), "response": response, "tags": tags}

    def _feedback(self) -> dict[str, Any]:
        return {
            "matched_key": bytes(32),
            "served_trace_id": b"\1" * 16,
            "verdict": "right",
        }

    def _produce(self, one: Sent) -> None:
        self.producer.produce(
            "cachemind.requests",
            one.value,
            one.namespace,
            headers={
                "reply-to": b"cachemind.replies",
                "correlation-id": one.request_id.bytes,
                "traceparent": f"00-{one.trace.hex()}-{'ab' * 8}-01".encode(),
            },
        )

    def poll(self) -> None:
        """Take in the answers that are committed by now, unless the broker is away."""
        self.producer.poll(0)
        with (
            suppress(LogUnavailable),
            closing(
                KafkaReader({"bootstrap.servers": self.servers}, "cachemind.replies")
            ) as reader,
        ):
            self._read(reader)

    def _read(self, reader: KafkaReader) -> None:
        for partition in map(Partition, range(PARTITIONS)):
            first, end = reader.bounds(partition)
            start = max(
                (at + 1 for number, at in self.seen if number == partition),
                default=first,
            )
            for batch in reader.read(partition, type(first)(start), end):
                for record in batch:
                    self.seen.add((partition, record.lsn.offset))
                    assert record.key is not None
                    assert record.value is not None
                    self.answers[uuid.UUID(bytes=record.key)].append(record.value)
            if end > start:
                self.seen.add((partition, end - 1))

    @property
    def waiting(self) -> int:
        return len(self.sent) - len(self.answers)


@contextmanager
def second_worker(
    host: Serving, servers: str, upstream: str
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Yield a list whose last is a second process that answers; append another."""
    running: list[subprocess.Popen[bytes]] = []
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


def start_worker(host: Serving, servers: str, upstream: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "cachemind_services.cli.main", "requests"]
    argv += ["--data-dir", str(host.data_dir), "--bootstrap-servers", servers]
    argv += ["--upstream", upstream, "--encoder", "off"]
    with (host.data_dir / "second.log").open("ab") as log:
        return subprocess.Popen(argv, stdout=log, stderr=log)


@pytest.mark.parametrize(
    ("commands", "kills"),
    [
        pytest.param(2_000, 3, id="2000", marks=pytest.mark.timeout(600)),
        pytest.param(
            10_000, 20, id="10000", marks=[pytest.mark.slow, pytest.mark.timeout(3000)]
        ),
    ],
)
def test_whatever_dies_each_request_id_is_answered_and_done_once(
    commands: int, kills: int, tmp_path: Path
) -> None:
    model, chance = ScriptedUpstream(), random.Random(commands)
    port = free_port()
    servers = f"127.0.0.1:{port}"
    flags = ("--broker-port", str(port), "--encoder", "off")
    with (
        served(model) as upstream,
        serving(upstream, tmp_path, *flags) as host,
        second_worker(host, servers, upstream) as seconds,
    ):
        seconds.append(start_worker(host, servers, upstream))
        load = Load(servers, chance)
        for number in range(kills):
            share = commands * (number + 1) // (kills + 1)
            _send_up_to(load, share)
            if number == kills // 2:
                host.kill_kafka(host.pid_of("broker"))
            if number % 2:
                seconds[-1].kill()
                seconds.append(start_worker(host, servers, upstream))
            else:
                eventually(lambda: host.runs("requests"), 60)
                host.kill("requests")
        _send_up_to(load, commands)
        assert load.producer.flush(60) == 0
        _until_answered(load)
        _check(load, servers)


def _send_up_to(load: Load, count: int) -> None:
    while len(load.sent) < count:
        load.send(min(100, count - len(load.sent)))
        if len(load.sent) - len(load.answers) > WINDOW:
            _until_fewer(load, WINDOW)


def _until_fewer(load: Load, most: int, timeout_s: float = 240.0) -> None:
    deadline = time.monotonic() + timeout_s
    while load.waiting > most:
        assert time.monotonic() < deadline, f"{load.waiting} are not answered"
        time.sleep(0.2)
        load.poll()


def _until_answered(load: Load) -> None:
    _until_fewer(load, 0)
    # What the client sent, and what its producer sent again while the broker was away.
    arrived = Counter(
        uuid.UUID(bytes=dict(record.headers)["correlation-id"])
        for record in _records(load.servers, "cachemind.requests")
    )
    assert arrived.total() >= len(load.sent) + load.twice

    def all_came() -> bool:
        load.poll()
        return _count(load) >= arrived.total()

    eventually(all_came, 120)
    assert Counter({one: len(got) for one, got in load.answers.items()}) == arrived


def _count(load: Load) -> int:
    return sum(map(len, load.answers.values()))


def _check(load: Load, servers: str) -> None:
    assert set(load.answers) == {one.request_id for one in load.sent}
    for one in load.sent:
        assert len(set(load.answers[one.request_id])) == 1, one
    found = _events(servers)
    order: dict[str, list[int]] = defaultdict(list)
    for one in load.sent:
        events = found[one.trace]
        kinds = Counter(type(body).__name__ for body, _ in events)
        assert kinds == _expected(one, kinds), (one.kind, kinds)
        order[one.namespace].append(min(at for _, at in events))
    for namespace, places in order.items():
        assert places == sorted(places), namespace
    assert set(found) == {one.trace for one in load.sent}


def _expected(one: Sent, kinds: Counter[str]) -> Counter[str]:
    """Return what a command leads to; a completion is stored, refused or a hit."""
    if one.kind == "Lookup":
        return Counter({"Read": 1})
    if one.kind == "Complete":
        stored = kinds["Stored"] + kinds["Refused"]
        assert stored <= 1
        return Counter({"Read": 1}) + Counter(
            {name: kinds[name] for name in ("Stored", "Refused")}
        )
    return Counter(
        {{"Put": "Stored", "Invalidate": "Invalidated"}.get(one.kind, one.kind): 1}
    )


Found = Sequence[tuple[Read | Stored | Invalidated | Feedback | Refused, int]]


def _events(servers: str) -> dict[bytes, Found]:
    """Return what the WAL holds of each trace, with its place among all events."""
    codec, place = Codec(), 0
    found: dict[bytes, list[Any]] = defaultdict(list)
    for record in _records(servers, "cachemind.wal"):
        envelope = codec.decode(record.value or b"")
        place += 1
        if not isinstance(envelope.body, Reads):
            found[envelope.trace_id].append((envelope.body, place))
            continue
        for read in envelope.body.items:
            place += 1
            found[read.trace_id].append((read, place))
    return dict(found)


def _records(servers: str, topic: str) -> list[LogRecord]:
    """Return what is committed on a topic, one partition after the other."""
    with closing(KafkaReader({"bootstrap.servers": servers}, topic)) as reader:
        return [
            record
            for partition in map(Partition, range(PARTITIONS))
            for batch in reader.read(partition, *reader.bounds(partition))
            for record in batch
        ]
