"""What a rollback costs: with few entries and with many, and what leads up to it.

`python -m tests.bench.bench_rollback [--entries N] [--few N] [--voided N]` starts its
own broker and prints JSON. For each size one namespace gets that many entries; half of
`voided` events before their end a checkpoint is made; the newest `voided` entries are
then overwritten and the namespace is rolled back to before that. Real Kafka, RocksDB
and checkpoints, the materializer's own code in this process; no gateway.

Times are by the clock; `_cpu_` is what the process used, whoever else was on the
machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from cachemind.adapters.checkpoints import RocksCheckpoints
from cachemind.adapters.clock import SystemClock
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import ensure_topics
from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.adapters.memory_log import MemoryLog
from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rocks_store import RocksStore
from cachemind.adapters.store_rows import StoreIdentity
from cachemind.agents.dead_letters import DeadLetters
from cachemind.agents.folding import Folder
from cachemind.agents.past import Sources
from cachemind.agents.replay import fill
from cachemind.agents.rollback import RollbackHooks, Rollbacks
from cachemind.codec.codec import Codec
from cachemind.core.rollback_report import RollbackReport, RollbackStatus
from cachemind.core.topics import Mode, topics
from cachemind.events import Body, RolledBack, Stored
from cachemind.types import EventId, Offset, Partition, Sha256, Version
from cachemind_services.broker import EmbeddedBroker
from tests.integration.materializer_process import NoMetrics
from tests.wal_events import ALPHA, envelope, stored

CODEC = Codec()
ZERO = Partition(0)
RESPONSE_BYTES = 256
IN_FLIGHT = 20_000
MS = 1000


class Bench:
    """One namespace on a log of its own, and the store it is folded into."""

    def __init__(self, broker: EmbeddedBroker, name: str, folder: Path) -> None:
        kafka = {"bootstrap.servers": broker.bootstrap_servers}
        wal = topics(1, Mode.DEVELOPMENT, name).wal
        log = ensure_topics(kafka, [wal])
        identity = StoreIdentity(
            cluster_id=log.cluster_id, topic_id=log.topic_ids[wal.name], partition=ZERO
        )
        memory = RocksMemory()
        self._writer = KafkaWriter(kafka, wal.name)
        self._reader = KafkaReader(kafka, wal.name)
        self._store = RocksStore(folder / "store", identity, memory)
        self._folder = folder
        self.checkpoints = RocksCheckpoints(folder / "checkpoints", identity, memory)
        sources = Sources(
            partition=ZERO,
            store=self._store,
            checkpoints=self.checkpoints,
            log=self._reader,
            decoder=CODEC,
        )
        hooks = RollbackHooks(monotonic_ns=time.monotonic_ns)
        letters = DeadLetters(MemoryLog(1, SystemClock()).writer(), "bench")
        self._fold = Folder(
            ZERO,
            1,
            self._store,
            CODEC,
            letters,
            NoMetrics(),
            Rollbacks(sources, self._store, hooks),
        )
        self._appended = 0

    def append(self, bodies: Iterator[Body]) -> None:
        """Append `bodies` and wait until all are durable."""
        waiting = []
        for body in bodies:
            self._appended += 1
            record = CODEC.encode(envelope(self._appended, body))
            waiting.append(self._writer.append(ALPHA.encode(), record, ()))
            if len(waiting) >= IN_FLIGHT:
                for future in waiting:
                    future.result(60)
                waiting = []
        for future in waiting:
            future.result(60)

    def fold(self) -> tuple[float, float]:
        """Fold all that is on the log; return the seconds, by clock and by CPU."""
        _, end = self._reader.bounds(ZERO)
        began, used = time.perf_counter(), time.process_time()
        fill(self._fold, self._reader, Offset(end))
        return time.perf_counter() - began, time.process_time() - used

    def checkpoint(self) -> tuple[float, int]:
        """Make a checkpoint; return the seconds and the bytes it holds."""
        began = time.perf_counter()
        manifest = self.checkpoints.create(self._store, time.time_ns())
        took_s = time.perf_counter() - began
        return took_s, sum(file.size_bytes for file in manifest.held.files)

    def own_bytes(self) -> int:
        """Return the disk that checkpoints take beside the store's own files."""
        return sum(
            found.st_size
            for path in (self._folder / "checkpoints").rglob("*")
            if path.is_file() and (found := path.stat()).st_nlink == 1
        )

    def report(self, rollback_id: EventId) -> RollbackReport:
        report = self._store.rollback_report(rollback_id)
        assert report is not None
        assert report.status is RollbackStatus.COMMITTED, report.verdict
        return report

    def close(self) -> None:
        self._writer.close(10)
        self._reader.close()
        self._store.close()


def poison(number: int) -> Stored:
    """Return an overwrite of the entry `number`."""
    response = b"poison".ljust(RESPONSE_BYTES, b".")
    hashed = Sha256(sha256(response).digest())
    return replace(
        stored(number, RESPONSE_BYTES), response=response, response_hash=hashed
    )


@dataclass(frozen=True)
class Measured:
    """Figures of one size."""

    entries: int
    voided: int
    replayed: int
    rollback_ms: int
    rollback_cpu_ms: int
    fold_ms: int
    again_ms: int
    bulk_events_per_s: int
    bulk_cpu_us_per_event: int
    checkpoint_ms: int
    checkpoint_bytes: int
    second_checkpoint_ms: int
    checkpoints_own_bytes: int


def measure(
    broker: EmbeddedBroker, entries: int, voided: int, folder: Path
) -> Measured:
    """Build a namespace of `entries`, void `voided` events and take it back."""
    with closing(Bench(broker, f"bench-{entries}", folder)) as bench:
        early = entries - voided // 2
        bench.append(stored(number, RESPONSE_BYTES) for number in range(early))
        folding_s, folding_cpu_s = bench.fold()
        checkpoint_s, held_bytes = bench.checkpoint()
        bench.append(stored(number, RESPONSE_BYTES) for number in range(early, entries))
        bench.append(poison(number) for number in range(entries - voided, entries))
        bench.fold()
        second_s, _ = bench.checkpoint()
        first, (fold_s, cpu_s) = rolled_back(bench, 1, entries)
        undone, _ = rolled_back(bench, 2, entries + voided)
        again, _ = rolled_back(bench, 3, entries)
        assert again.digest == first.digest != undone.digest
        return Measured(
            entries=entries,
            voided=voided,
            replayed=first.replayed,
            rollback_ms=first.duration_ms,
            rollback_cpu_ms=round(cpu_s * MS),
            fold_ms=round(fold_s * MS),
            again_ms=again.duration_ms,
            bulk_events_per_s=round(early / folding_s),
            bulk_cpu_us_per_event=round(folding_cpu_s / early * 1e6),
            checkpoint_ms=round(checkpoint_s * MS),
            checkpoint_bytes=held_bytes,
            second_checkpoint_ms=round(second_s * MS),
            checkpoints_own_bytes=bench.own_bytes(),
        )


def rolled_back(
    bench: Bench, number: int, target: int
) -> tuple[RollbackReport, tuple[float, float]]:
    """Roll back; return the report, and the seconds of folding the record."""
    rollback_id = EventId(number.to_bytes(16, "big"))
    body = RolledBack(
        rollback_id=rollback_id,
        to_version=Version(target),
        expected_head=-1,
        reason="bench",
    )
    bench.append(iter([body]))
    took_s = bench.fold()
    return bench.report(rollback_id), took_s


def main(argv: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--few", type=int, default=10_000)
    parser.add_argument("--voided", type=int, default=10_000)
    sizes = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name, EmbeddedBroker(Path(name)) as broker:
        found = [
            measure(broker, entries, sizes.voided, Path(name) / f"size-{entries}")
            for entries in (sizes.few, sizes.entries)
        ]
    few, many = found
    measured = {
        "sizes": [each.__dict__ for each in found],
        "times_slower_with_many": round(
            many.rollback_cpu_ms / max(few.rollback_cpu_ms, 1), 2
        ),
        "cpus": os.cpu_count(),
    }
    sys.stdout.write(json.dumps(measured, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
