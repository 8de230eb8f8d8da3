"""A host as an operator runs it: `cachemind` commands on the session's broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rocks_view import RocksView
from cachemind.codec.codec import Codec
from cachemind.core.partitioner import partition_of
from cachemind.core.state import NamespaceState
from cachemind.errors import StoreUnavailable
from cachemind.events import Body
from cachemind.types import Lsn, Namespace, Offset, Partition
from tests.wal_events import ALPHA, envelope

CODEC = Codec()
PARTITIONS = 2
POLL_S = 0.02
T = TypeVar("T")


@dataclass
class CliHost:
    """One data folder on one log; `flags` are settings of every command."""

    data_dir: Path
    prefix: str
    bootstrap_servers: str
    settings: Mapping[str, str] = field(default_factory=dict)
    appended: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def kafka(self) -> dict[str, str]:
        """Return librdkafka's settings."""
        return {"bootstrap.servers": self.bootstrap_servers}

    @property
    def wal(self) -> str:
        """Return the WAL's topic."""
        return f"{self.prefix}.wal"

    def environ(self) -> dict[str, str]:
        """Return the variables of every command."""
        mine = {
            "CACHEMIND_KAFKA_BOOTSTRAP_SERVERS": self.bootstrap_servers,
            "CACHEMIND_DATA_DIR": str(self.data_dir),
            "CACHEMIND_TOPIC_PREFIX": self.prefix,
            "CACHEMIND_PARTITIONS": str(PARTITIONS),
            "CACHEMIND_NAMESPACE": ALPHA,
            "CACHEMIND_ENCODER": "off",
        }
        return {**os.environ, **mine, **self.settings}

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a `cachemind` command to its end and check its exit code."""
        done = subprocess.run(
            [sys.executable, "-m", "cachemind_services.cli.main", *arguments],
            env=self.environ(),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
        return done

    def start(self) -> None:
        """Start `cachemind materializer`."""
        argv = [sys.executable, "-m", "cachemind_services.cli.main", "materializer"]
        self.data_dir.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                argv, env=self.environ(), stdout=log, stderr=log
            )

    @property
    def log_path(self) -> Path:
        """Return where the materializer's output goes."""
        return self.data_dir / "materializer.log"

    def output(self) -> str:
        """Return what the materializer has said so far."""
        return self.log_path.read_text(errors="replace")

    def stop(self) -> None:
        """SIGTERM the materializer and check that it ended in order."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(15) == 0, self.output()
        self.process = None

    def kill(self) -> None:
        """SIGKILL the materializer, if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process = None

    def append(self, *bodies: Body, namespace: Namespace = ALPHA) -> list[Lsn]:
        """Return where `bodies` are on the log, once durable."""
        waiting: list[Future[Lsn]] = []
        writer = KafkaWriter(self.kafka, self.wal)
        for body in bodies:
            event = envelope(self.appended, body, namespace)
            self.appended += 1
            record = CODEC.encode(event)
            waiting.append(writer.append(namespace.encode(), record, ()))
        found = [future.result(30) for future in waiting]
        writer.close(10)
        return found

    def ends(self) -> dict[Partition, Offset]:
        """Return where each partition ends."""
        with closing(KafkaReader(self.kafka, self.wal)) as reader:
            return {p: reader.bounds(p)[1] for p in self.partitions}

    def newest(self) -> dict[Partition, Offset]:
        """Return where the last record of each partition is, -1 for none.

        It may be well before the end: what ends a transaction has an offset too.
        """
        with closing(KafkaReader(self.kafka, self.wal)) as reader:
            return {
                partition: max(
                    (
                        record.lsn.offset
                        for batch in reader.read(partition, *reader.bounds(partition))
                        for record in batch
                    ),
                    default=Offset(-1),
                )
                for partition in self.partitions
            }

    def applied(self) -> dict[Partition, Offset]:
        """Return how far each store is, -1 where there is none."""
        return {p: self._view(p, lambda view: view.applied()) for p in self.partitions}

    def state(self, namespace: Namespace = ALPHA) -> NamespaceState:
        """Return the folded state of `namespace`."""
        home = partition_of(namespace.encode(), PARTITIONS)
        return self._view(home, lambda view: view.namespace(namespace))

    def wait_folded(self, timeout_s: float = 60.0) -> None:
        """Return once everything on the log is folded."""
        newest = self.newest()
        self.wait(
            lambda: all(self.applied()[p] >= at for p, at in newest.items()), timeout_s
        )

    def wait(self, reached: Callable[[], bool], timeout_s: float = 60.0) -> None:
        """Return once `reached`, while the materializer runs."""
        deadline = time.monotonic() + timeout_s
        while not reached():
            assert self.process is not None
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < deadline, f"{self.applied()} {self.output()}"
            time.sleep(POLL_S)

    @property
    def partitions(self) -> Sequence[Partition]:
        """Return every partition's number."""
        return list(map(Partition, range(PARTITIONS)))

    def store_path(self, partition: int) -> Path:
        """Return the folder of one partition's store."""
        return self.data_dir / "store" / str(partition)

    def _view(self, partition: Partition, ask: Callable[[RocksView], T]) -> T:
        view = RocksView(self.store_path(partition), RocksMemory(2**20, 2**20))
        with closing(view):
            with suppress(StoreUnavailable):  # not made yet: shows nothing
                view.catch_up()
            return ask(view)


@contextmanager
def cli_host(
    bootstrap_servers: str, prefix: str, data_dir: Path, **settings: str
) -> Iterator[CliHost]:
    """Yield a host; end its materializer in any case."""
    running = CliHost(
        data_dir,
        prefix,
        bootstrap_servers,
        {f"CACHEMIND_{name.upper()}": value for name, value in settings.items()},
    )
    try:
        yield running
    finally:
        running.kill()
