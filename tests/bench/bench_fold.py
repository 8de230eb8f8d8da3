"""How fast the log becomes state: live through Faust, in bulk, and one by one.

A lone event is one of ten a second, a steady one of eighty: so many records are read
from Kafka some at a time (`agents/pacing.py`), which costs them a wait.

Rates are by the clock; `live_cpu_us_per_event` is what the process used, whoever else
was on the machine.

`python -m tests.bench.bench_fold` starts its own broker and prints JSON. Events are
`Stored` with a response of 1 KB, eight namespaces in two partitions.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rocks_view import RocksView
from cachemind.codec.codec import Codec
from cachemind.core.partitioner import partition_of
from cachemind.types import Namespace
from cachemind_services.broker import EmbeddedBroker
from tests.integration.folding_host import Host, host
from tests.wal_events import envelope, stored

EVENTS = 20_000
ONE_BY_ONE = 100
LONE_PAUSE_S = 0.1
STEADY_PAUSE_S = 0.01
RESPONSE_BYTES = 1024
NAMESPACES = [Namespace(f"n{number}") for number in range(8)]


def append(writer: KafkaWriter, first: int, count: int) -> None:
    """Append events `first` and after, and wait until all are durable."""
    codec = Codec()
    waiting = []
    for number in range(first, first + count):
        namespace = NAMESPACES[number % len(NAMESPACES)]
        body = stored(number, RESPONSE_BYTES)
        record = codec.encode(envelope(number, body, namespace))
        waiting.append(writer.append(namespace.encode(), record, ()))
    for future in waiting:
        future.result(60)


def live_rate(folding: Host, writer: KafkaWriter) -> tuple[float, float]:
    """Return events/s while behind, and CPU microseconds an event."""
    folding.start()
    folding.wait_live()
    used_s = folding.cpu_s()
    append(writer, 0, EVENTS)
    began, before = time.perf_counter(), sum(folding.applied().values())
    folding.wait_applied(folding.ends())
    folded = sum(folding.applied().values()) - before
    rate = folded / (time.perf_counter() - began)
    return rate, (folding.cpu_s() - used_s) / EVENTS * 1e6


def latencies_ms(
    folding: Host, writer: KafkaWriter, first: int, pause_s: float
) -> tuple[float, float]:
    """Return p50 and p99 of the times from an acknowledged append to the state."""
    namespace = NAMESPACES[0]
    partition = partition_of(namespace.encode(), folding.place.partitions)
    view = RocksView(folding.place.store_path(partition), RocksMemory(2**20, 2**20))
    found = []
    with closing(view):
        for number in range(first, first + ONE_BY_ONE):
            event = envelope(number, stored(number, RESPONSE_BYTES), namespace)
            record = Codec().encode(event)
            lsn = writer.append(namespace.encode(), record, ()).result(10)
            began = time.perf_counter()
            while view.catch_up() < lsn.offset:
                time.sleep(0.0002)
            found.append((time.perf_counter() - began) * 1000)
            time.sleep(pause_s)
    found.sort()
    return found[len(found) // 2], found[len(found) * 99 // 100]


def bulk_rate(folding: Host, folder: Path) -> float:
    """Return records/s of folding the whole log into new stores."""
    records = sum(end for end in folding.ends().values())
    began = time.perf_counter()
    folding.rebuilt(folder)
    return records / (time.perf_counter() - began)


def main() -> int:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name, EmbeddedBroker(Path(name)) as broker:
        folder = Path(name)
        with host(broker, "bench", folder) as folding:
            writer = KafkaWriter(folding.place.settings(), folding.place.wal)
            with closing(folding):
                live, cpu_us = live_rate(folding, writer)
                lone = latencies_ms(folding, writer, EVENTS, LONE_PAUSE_S)
                second = EVENTS + ONE_BY_ONE
                steady = latencies_ms(folding, writer, second, STEADY_PAUSE_S)
            writer.close(5)
            bulk = bulk_rate(folding, folder / "again")
    measured = {
        "live_events_per_s": round(live),
        "live_cpu_us_per_event": round(cpu_us),
        "bulk_records_per_s": round(bulk),
        "lone_event_p50_ms": round(lone[0], 2),
        "lone_event_p99_ms": round(lone[1], 2),
        "steady_event_p50_ms": round(steady[0], 2),
        "steady_event_p99_ms": round(steady[1], 2),
    }
    sys.stdout.write(json.dumps(measured) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
