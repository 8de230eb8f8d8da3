"""One host's materializer process and stores, with handles to break and look at it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeVar

from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import ensure_topics
from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rocks_view import RocksView
from cachemind.agents.dead_letters import DeadLetters
from cachemind.agents.folding import Folder
from cachemind.agents.replay import catch_up
from cachemind.codec.codec import Codec
from cachemind.core.state import NamespaceState
from cachemind.core.topics import Mode, topics
from cachemind.errors import StoreUnavailable
from cachemind.ports import LogRecord
from cachemind.types import Namespace, Offset, Partition
from cachemind_services.broker import EmbeddedBroker
from tests.integration.materializer_process import NoMetrics, Place

ROOT = Path(__file__).parents[2]
POLL_S = 0.02
T = TypeVar("T")


class Host:
    """A place to fold one WAL, and the process that does it."""

    def __init__(self, place: Place, log_path: Path) -> None:
        self.place = place
        self.process: subprocess.Popen[bytes] | None = None
        self._log_path = log_path

    def start(self) -> None:
        """Start the materializer."""
        with self._log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.integration.materializer_process",
                    json.dumps(asdict(self.place)),
                ],
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """SIGKILL the materializer."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self, timeout_s: float = 10.0) -> int:
        """SIGTERM the materializer; return its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def close(self) -> None:
        """End the materializer in any case."""
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def wait_exit(self, timeout_s: float = 60.0) -> int:
        """Return the exit code once the materializer ended by itself."""
        assert self.process is not None
        return self.process.wait(timeout_s)

    def output(self) -> str:
        """Return what the materializer has logged so far."""
        return self._log_path.read_text(errors="replace")

    def cpu_s(self) -> float:
        """Return the seconds of processor that the materializer has used."""
        assert self.process is not None
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def applied(self) -> dict[Partition, Offset]:
        """Return the applied offset of every store, -1 where there is none yet."""
        return {p: self._view(p, lambda view: view.applied()) for p in self.partitions}

    def wait_applied(
        self, ends: Mapping[Partition, Offset], timeout_s: float = 60.0
    ) -> None:
        """Return once every store holds the last record below its end."""
        self._wait(
            lambda: all(self.applied()[p] + 1 >= end for p, end in ends.items()),
            timeout_s,
        )

    def wait_more(self, events: int) -> None:
        """Return once that many more offsets are applied, or all there are."""
        goal = sum(self.applied().values()) + events
        self._wait(lambda: sum(self.applied().values()) >= goal or self._is_even())

    def wait_live(self) -> None:
        """Return once the group has a live member with every partition."""
        count = self.place.partitions
        said = f"{count} of {count} partitions are live"
        self._wait(lambda: said in self.output())

    def wait_output(self, words: str) -> None:
        """Return once the materializer has logged `words`."""
        self._wait(lambda: words in self.output())

    def wait_count(self, events: int) -> None:
        """Return once that many events changed some namespace."""
        self._wait(lambda: sum(s.version for s in self.states()) >= events)

    def dead_letters(self) -> list[LogRecord]:
        """Return every record of the dead-letter topic."""
        reader = KafkaReader(self.place.settings(), self.place.dlq)
        with closing(reader):
            first, end = reader.bounds(Partition(0))
            batches = reader.read(Partition(0), first, end)
            return [letter for batch in batches for letter in batch]

    def state(self, namespace: Namespace, partition: Partition) -> NamespaceState:
        """Return the folded state of `namespace`."""
        return self._view(partition, lambda view: view.namespace(namespace))

    def states(self) -> list[NamespaceState]:
        """Return every namespace of every partition."""
        return [
            state
            for partition in self.partitions
            for state in self._view(partition, lambda view: view.namespaces())
        ]

    def ends(self) -> dict[Partition, Offset]:
        """Return where the log ends."""
        with closing(KafkaReader(self.place.settings(), self.place.wal)) as reader:
            return {p: reader.bounds(p)[1] for p in self.partitions}

    def beside(self, folder: Path) -> Host:
        """Return a host of the same log and group with stores of its own."""
        folder.mkdir()
        place = replace(self.place, data_dir=str(folder / "store"))
        return Host(place, folder / "materializer.log")

    def rebuilt(self, data_dir: Path) -> Host:
        """Return a host whose stores were folded in bulk from the log alone."""
        place = replace(self.place, data_dir=str(data_dir))
        stores = place.open_stores()
        writer = KafkaWriter(place.settings(), place.dlq)
        with closing(KafkaReader(place.settings(), place.wal)) as reader:
            for partition, store in stores.items():
                letters = DeadLetters(writer, place.wal)
                folder = Folder(
                    partition, place.partitions, store, Codec(), letters, NoMetrics()
                )
                catch_up(folder, reader, near_end_records=1)
                store.close()
        writer.close(5.0)
        return Host(place, self._log_path)

    @property
    def partitions(self) -> list[Partition]:
        """The WAL's partitions."""
        return list(map(Partition, range(self.place.partitions)))

    def _is_even(self) -> bool:
        applied = self.applied()
        return all(applied[p] + 1 >= end for p, end in self.ends().items())

    def _wait(self, reached: Callable[[], bool], timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not reached():
            assert self.process is not None
            code = self.process.poll()
            assert code is None, f"{code} {self.output()}"
            assert time.monotonic() < deadline, f"{self.applied()} {self.output()}"
            time.sleep(POLL_S)

    def _view(self, partition: Partition, ask: Callable[[RocksView], T]) -> T:
        path = self.place.store_path(partition)
        view = RocksView(path, RocksMemory(2**20, 2**20))
        try:
            with suppress(StoreUnavailable):  # not made yet: shows nothing
                view.catch_up()
            return ask(view)
        finally:
            view.close()


@contextmanager
def host(
    broker: EmbeddedBroker,
    prefix: str,
    folder: Path,
    partitions: int = 2,
    patience_s: float = 60.0,
) -> Iterator[Host]:
    """Yield a host on topics of its own; end its process in any case."""
    table = topics(partitions, Mode.DEVELOPMENT, prefix)
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    log = ensure_topics(servers, [table.wal, table.dlq])
    place = Place(
        bootstrap_servers=broker.bootstrap_servers,
        cluster_id=log.cluster_id,
        topic_id=log.topic_ids[table.wal.name],
        wal=table.wal.name,
        dlq=table.dlq.name,
        group=f"{prefix}-fold",
        data_dir=str(folder / "store"),
        partitions=partitions,
        patience_s=patience_s,
    )
    running = Host(place, folder / "materializer.log")
    try:
        yield running
    finally:
        running.close()
