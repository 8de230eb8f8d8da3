"""A sink in a process of its own, on the session's broker, and what it is to seal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer

from cachemind.adapters.audit_files_reader import AuditFilesReader
from cachemind.adapters.audit_folder import AuditFolder
from cachemind.adapters.kafka_topics import ensure_topics
from cachemind.core.topics import Mode, topics
from cachemind.ports.audit_files import AuditTarget
from cachemind.types import Partition
from tests.sealed_cases import Cuts, Receipts

PARTITIONS = 2
STOP_S = 10.0
WAIT_S = 120.0
"""A killed member is in the group until its session ends, and machines are busy."""

DIED = -signal.SIGKILL


@dataclass
class SinkHost:
    """Topics that a test fills in transactions, as signers do, and sinks on them."""

    bootstrap_servers: str
    prefix: str
    folder: Path
    log_file: Path
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.topics = topics(PARTITIONS, Mode.DEVELOPMENT, self.prefix)
        kafka = {"bootstrap.servers": self.bootstrap_servers}
        ensure_topics(kafka, self.topics.all())
        self.receipts = [Receipts(number) for number in range(PARTITIONS)]
        self.cuts = Cuts()
        self.written: dict[str, list[bytes]] = {}
        self.running: list[subprocess.Popen[bytes]] = []
        self._producer = Producer(
            {**kafka, "transactional.id": f"{self.prefix}.test-signer"}
        )
        self._producer.init_transactions(20)

    def sign(self, count: int) -> None:
        """Append receipts to every partition and a cut over them: one transaction."""
        self._producer.begin_transaction()
        for one in self.receipts:
            for value in one.some(count):
                self._put(self.topics.audit.name, one.partition, value)
        self._put(self.topics.audit_cuts.name, 0, self.cuts.over(self.receipts))
        self._producer.commit_transaction(20)

    def _put(self, topic: str, partition: int, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(topic, value=value, partition=partition)
                break
            except BufferError:
                self._producer.poll(0.1)
        key = "cuts" if topic == self.topics.audit_cuts.name else str(partition)
        self.written.setdefault(key, []).append(value)

    def start(self, failpoint: str = "") -> subprocess.Popen[bytes]:
        """Start one more sink."""
        environ = {
            **os.environ,
            "CACHEMIND_KAFKA_BOOTSTRAP_SERVERS": self.bootstrap_servers,
            "CACHEMIND_DATA_DIR": str(self.folder.parent / "data"),
            "CACHEMIND_TOPIC_PREFIX": self.prefix,
            "CACHEMIND_PARTITIONS": str(PARTITIONS),
            "CACHEMIND_SINK_FILE_S": "1",
            **(
                {}
                if "CACHEMIND_SINK_URL" in self.settings
                else {"CACHEMIND_SINK_DIR": str(self.folder)}
            ),
            **self.settings,
        }
        command = [sys.executable, "-m", "cachemind_services.cli.main", "sink"]
        with self.log_file.open("ab") as out:
            process = subprocess.Popen(
                [*command, f"--failpoint={failpoint}"],
                env=environ,
                stdout=out,
                stderr=out,
            )
        self.running.append(process)
        return process

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """Stop a sink as a supervisor does; it must end in order, and in time."""
        process.terminate()
        assert process.wait(STOP_S) == 0, self.said()

    def kill_all(self) -> None:
        """Kill what still runs."""
        for process in self.running:
            process.kill()
            process.wait(STOP_S)

    def said(self) -> str:
        """Return the lines of all sinks."""
        return self.log_file.read_text() if self.log_file.exists() else ""

    def sealed(self, target: AuditTarget | None = None) -> dict[str, Sequence[bytes]]:
        """Return what a verifier reads, which must find nothing wrong."""
        reader = AuditFilesReader(target or AuditFolder(self.folder))
        found: dict[str, Sequence[bytes]] = {
            str(number): list(reader.receipts(number))
            for number in map(Partition, range(PARTITIONS))
        }
        found["cuts"] = list(reader.cuts())
        assert [str(one) for one in reader.problems] == []
        return found

    def wait_until_sealed(
        self, target: AuditTarget | None = None, timeout_s: float = WAIT_S
    ) -> None:
        """Wait until all that was written is in sealed files, each once."""
        self.wait_until(lambda: self._is_sealed(target), timeout_s)

    def _is_sealed(self, target: AuditTarget | None) -> bool:
        found = self.sealed(target)
        for key, values in found.items():
            assert values == self.written[key][: len(values)], key
        return found == self.written

    def wait_until(self, holds: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
        """Wait until `holds`."""
        until = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < until, self.said()[-5000:]
            time.sleep(0.1)
