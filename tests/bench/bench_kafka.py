"""`make bench-kafka`: look-ups that hit over Kafka, beside the same over HTTP.

Everything is on this machine: load, Kafka, materializer, gateway, processes that
answer commands. First one process answers, then three; HTTP is loaded with wrk before
and after, in the same run. A *window* is how many look-ups are sent and not answered;
latency is from produce to the reply in the client's hands.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

from cachemind.codec.commands import decode_reply, encode_command
from cachemind.core.cache_commands import Answered, Complete, Lookup
from cachemind.core.commands import Command
from cachemind.core.partitioner import partition_of
from cachemind.events import Outcome
from cachemind.types import EventId, Namespace
from tests.bench.bench_gateway import Load, stub, wrk
from tests.bench.running import free_port, running, wait_for

PARTITIONS: Final = 4
PROMPTS: Final = 50
WINDOWS: Final = (1, 16, 256)
READY_S: Final = 120


@dataclass(frozen=True, slots=True)
class Host:
    """`cachemind serve`, and what its clients need."""

    url: str
    servers: str
    folder: Path
    upstream: str


def body(number: int) -> bytes:
    """Return a request; the ones that wrk sends are others."""
    prompt = f"Over Kafka: what is question {number}?"
    messages = [{"role": "user", "content": prompt}]
    return json.dumps({"model": "m", "messages": messages}).encode()


def namespaces() -> list[Namespace]:
    """Return one namespace for each partition, so that all workers have work."""
    found: dict[int, Namespace] = {}
    number = 0
    while len(found) < PARTITIONS:
        name = Namespace(f"bench-{number}")
        found.setdefault(partition_of(name.encode(), PARTITIONS), name)
        number += 1
    return list(found.values())


@contextmanager
def cachemind(upstream: str, folder: Path) -> Iterator[Host]:
    """Run everything on one machine."""
    port, broker = free_port(), free_port()
    argv = [sys.executable, "-m", "cachemind_services.cli.main", "serve"]
    argv += ["--upstream", upstream, "--port", str(port), "--data-dir", str(folder)]
    argv += ["--broker-port", str(broker), "--partitions", str(PARTITIONS)]
    with running(argv, dict(os.environ)):
        url = f"http://127.0.0.1:{port}"
        wait_for(url + "/readyz", READY_S)
        yield Host(url, f"127.0.0.1:{broker}", folder, upstream)


@contextmanager
def another(host: Host) -> Iterator[None]:
    """Run one more process that answers commands."""
    argv = [sys.executable, "-m", "cachemind_services.cli.main", "requests"]
    argv += ["--data-dir", str(host.folder), "--upstream", host.upstream]
    argv += ["--bootstrap-servers", host.servers, "--partitions", str(PARTITIONS)]
    with running(argv, dict(os.environ)):
        yield


class Client:
    """Sends look-ups and takes in their answers, at most a window of them open."""

    def __init__(self, host: Host) -> None:
        settings = {"bootstrap.servers": host.servers}
        self.producer = Producer(
            {**settings, "partitioner": "murmur2_random", "linger.ms": 0}
        )
        self.consumer = Consumer(
            {
                **settings,
                "group.id": uuid.uuid4().hex,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 5,
            }
        )
        replies = [TopicPartition("cachemind.replies", p) for p in range(PARTITIONS)]
        for place in replies:
            place.offset = self.consumer.get_watermark_offsets(place)[1]
        self.consumer.assign(replies)
        self.names = namespaces()
        self.sent: dict[bytes, float] = {}
        self.number = 0

    def load(self, window: int, seconds: float) -> Load:
        """Return what was measured, of answers that are hits."""
        waits_ms: list[float] = []
        failed, began = 0, time.perf_counter()
        until = began + seconds
        while time.perf_counter() < until or self.sent:
            while len(self.sent) < window and time.perf_counter() < until:
                self._send()
            for key, value in self._answers():
                waits_ms.append((time.perf_counter() - self.sent.pop(key)) * 1e3)
                failed += not is_hit(value)
        took_s = time.perf_counter() - began
        cuts = statistics.quantiles(waits_ms, n=100)
        return Load(len(waits_ms) / took_s, cuts[49], cuts[98], failed)

    def prepare(self) -> None:
        """Have every prompt stored in every namespace."""
        deadline = time.monotonic() + READY_S
        for _ in range(PROMPTS * len(self.names)):
            self._send(Complete)
        while self.sent:
            assert time.monotonic() < deadline, f"{len(self.sent)} without an answer"
            for key, _ in self._answers():
                self.sent.pop(key, None)

    def _send(self, kind: type[Complete | Lookup] = Lookup) -> None:
        self.number += 1
        name = self.names[self.number % len(self.names)]
        asked = body(self.number // len(self.names) % PROMPTS)
        key = uuid.uuid4().bytes
        command = Command(
            request_id=EventId(key),
            namespace=name,
            body=kind(request=asked),
        )
        self.sent[key] = time.perf_counter()
        self.producer.produce(
            "cachemind.requests",
            encode_command(command),
            name,
            headers={"reply-to": b"cachemind.replies", "correlation-id": key},
        )
        self.producer.poll(0)

    def _answers(self) -> Iterator[tuple[bytes, bytes]]:
        first = self.consumer.poll(0.05)
        if first is None:
            return
        for message in (first, *self.consumer.consume(500, 0)):
            key, value = message.key(), message.value()
            if message.error() is None and key in self.sent and value is not None:
                assert isinstance(key, bytes)
                yield key, value

    def close(self) -> None:
        """Leave the cluster."""
        self.consumer.close()


def is_hit(record: bytes) -> bool:
    """Return whether a reply is a hit."""
    answered = decode_reply(record).body
    return isinstance(answered, Answered) and answered.outcome is Outcome.HIT_EXACT


def measure(seconds: int, rounds: int) -> Mapping[str, object]:
    """Return the figures of one run: medians over `rounds`."""
    folder = Path(tempfile.mkdtemp(prefix="cachemind-bench-"))
    found: dict[str, object] = {}
    try:
        with stub() as upstream, cachemind(upstream, folder) as host:
            wrk(host.url, 16, 3)  # the misses
            client = Client(host)
            client.prepare()
            client.load(64, 5)  # until the JVM is warm
            found["http_first"] = _http(host, seconds, rounds)
            found["kafka_1_process"] = _kafka(client, seconds, rounds)
            with ExitStack() as more:
                for _ in range(2):
                    more.enter_context(another(host))
                _settled(client, seconds)
                found["kafka_3_processes"] = _kafka(client, seconds, rounds)
            found["http_last"] = _http(host, seconds, rounds)
            client.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _settled(client: Client, seconds: int) -> None:
    """Return once the group has shared the partitions out among all processes."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        load = client.load(64, max(seconds, 10))
        if load.p99_ms < 1_000:
            return


def _http(host: Host, seconds: int, rounds: int) -> Mapping[str, object]:
    return {
        f"connections_{count}": _middle(
            [wrk(host.url, count, seconds) for _ in range(rounds)]
        )
        for count in WINDOWS
    }


def _kafka(client: Client, seconds: int, rounds: int) -> Mapping[str, object]:
    return {
        f"window_{window}": _middle(
            [client.load(window, seconds) for _ in range(rounds)]
        )
        for window in WINDOWS
    }


def _middle(loads: list[Load]) -> Mapping[str, float]:
    return {
        "per_second": round(statistics.median(one.per_second for one in loads), 1),
        "p50_ms": round(statistics.median(one.p50_ms for one in loads), 2),
        "p99_ms": round(statistics.median(one.p99_ms for one in loads), 2),
        "not_hits": sum(one.failed for one in loads),
    }


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    figures = measure(arguments.seconds, arguments.rounds)
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
