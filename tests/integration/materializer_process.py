"""A materializer on real adapters in a process of its own, to be killed by tests.

`python -m tests.integration.materializer_process JSON`; the fields are `Place`'s.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import logging
import signal
import sys
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from cachemind.adapters.kafka_groups import KafkaGroupOffsets
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rocks_store import RocksStore
from cachemind.adapters.store_rows import StoreIdentity
from cachemind.agents.materializer import MaterializerDeps, run_materializer
from cachemind.codec.codec import Codec
from cachemind.core.rollback_report import RollbackStatus
from cachemind.core.state import Effect
from cachemind.types import Offset, Partition

WAIT_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Place:
    """Which log, and where its stores are."""

    bootstrap_servers: str
    cluster_id: str
    topic_id: str
    wal: str
    dlq: str
    group: str
    data_dir: str
    partitions: int
    patience_s: float = 60.0
    kafka: dict[str, str] = field(default_factory=dict)

    def store_path(self, partition: Partition) -> Path:
        """Return the folder of one partition's store."""
        return Path(self.data_dir) / str(partition)

    def identity(self, partition: Partition) -> StoreIdentity:
        """Return which log a partition's store is of."""
        return StoreIdentity(
            cluster_id=self.cluster_id, topic_id=self.topic_id, partition=partition
        )

    def settings(self) -> dict[str, str]:
        """Return Kafka's settings, in librdkafka's names."""
        return {"bootstrap.servers": self.bootstrap_servers, **self.kafka}

    def open_stores(self) -> dict[Partition, RocksStore]:
        """Open every partition's store."""
        memory = RocksMemory()
        return {
            partition: RocksStore(
                self.store_path(partition), self.identity(partition), memory
            )
            for partition in map(Partition, range(self.partitions))
        }


class NoMetrics:
    """`FoldMetrics` that nobody reads."""

    def folded(self, partition: Partition, kind: str, effect: Effect) -> None: ...

    def dead_lettered(self, partition: Partition, reason: str) -> None: ...

    def fold_lag(self, partition: Partition, records: int) -> None: ...

    def rolled_back(self, partition: Partition, status: RollbackStatus) -> None: ...

    def quarantined(self, partition: Partition, namespaces: int) -> None: ...

    def halted(self, partition: Partition, *, stands: bool) -> None: ...

    def progressed(self, partition: Partition, applied: Offset) -> None: ...


async def materialize(place: Place) -> int:
    """Run a materializer at `place` until SIGTERM; return its exit code."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = place.settings()
    with (
        closing(
            KafkaReader(settings, place.wal, stall_s=WAIT_S, request_s=WAIT_S)
        ) as reader,
        closing(KafkaGroupOffsets(settings, place.group, place.wal, WAIT_S)) as offsets,
    ):
        dead_letters = KafkaWriter(settings, place.dlq)
        try:
            return await run_materializer(
                MaterializerDeps(
                    decoder=Codec(),
                    reader=reader,
                    stores=place.open_stores(),
                    dead_letters=dead_letters,
                    group_offsets=offsets,
                    kafka=settings,
                    wal_topic=place.wal,
                    group=place.group,
                    metrics=NoMetrics(),
                    stop=stop,
                    patience_s=place.patience_s,
                )
            )
        finally:
            dead_letters.close(WAIT_S)


def main() -> int:
    """Run at the place that the first argument describes."""
    faulthandler.register(signal.SIGUSR1)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s"
    )
    return asyncio.run(materialize(Place(**json.loads(sys.argv[1]))))


if __name__ == "__main__":
    sys.exit(main())
