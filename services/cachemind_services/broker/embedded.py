"""One real Kafka broker as a child process, or as a daemon."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cachemind_services.broker.data_folder import BrokerRecord, DataFolder
from cachemind_services.broker.diagnosis import Cause, cause_of_death, last_words
from cachemind_services.broker.distribution import (
    KafkaDistribution,
    Progress,
    silent,
)
from cachemind_services.broker.errors import (
    BrokerDied,
    BrokerNotReady,
    BrokerNotRunning,
    NoDiskSpace,
    PortTaken,
)
from cachemind_services.broker.java import find_java
from cachemind_services.broker.jvm import KafkaJvm
from cachemind_services.broker.readiness import answers
from cachemind_services.broker.server_config import (
    LOOPBACK,
    Ports,
    log4j_xml,
    server_properties,
)
from cachemind_services.broker.sockets import choose_port, free_port

DEFAULT_HEAP_MB: Final = 384
MIN_FREE_MB: Final = 256
READY_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 9.0
_POLL_S: Final = 0.05
_TAIL_BYTES: Final = 32_768


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatus:
    """What can be seen of the broker on a data folder.

    `pid` is the JVM's. Units: `data_bytes` on disk.
    """

    running: bool = False
    ready: bool = False
    pid: int | None = None
    bootstrap_servers: str | None = None
    cluster_id: str | None = None
    kafka_version: str | None = None
    data_bytes: int


class EmbeddedBroker:
    """Apache Kafka in KRaft mode on loopback, one node, one data folder.

    As a context manager it is started and ready inside the block. The JVM dies with
    the process that started it, unless it was started as a daemon.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int = 0,
        java: Path | None = None,
        heap_mb: int = DEFAULT_HEAP_MB,
        cache_dir: Path | None = None,
        cluster_id: str | None = None,
        min_free_mb: int = MIN_FREE_MB,
        progress: Progress = silent,
    ) -> None:
        """Remember the settings; `port` 0 means the last one, or any free one."""
        self._folder = DataFolder(data_dir)
        self._port = port
        self._java = java
        self._heap_mb = heap_mb
        self._cache_dir = cache_dir
        self._expected_cluster = cluster_id
        self._min_free_bytes = min_free_mb * 2**20
        self._progress = progress
        self._process: subprocess.Popen[bytes] | None = None
        self._record: BrokerRecord | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect. Raises: `BrokerNotRunning` before a start."""
        return f"{LOOPBACK}:{self._started().port}"

    @property
    def pid(self) -> int:
        """The JVM's process id. Raises: `BrokerNotRunning` before a start."""
        return self._started().pid

    @property
    def cluster_id(self) -> str:
        """The cluster's id. Raises: `BrokerNotRunning` before a start."""
        return self._started().cluster_id

    def start(self, *, daemon: bool = False) -> None:
        """Start the JVM; `wait_ready` says when it serves.

        1. Fetch and verify the jars, look at Java.
        2. Lock the folder, check that it is ours and has space.
        3. Choose ports, write the configuration, format on the first start.
        4. Start the JVM, which inherits the lock.

        Raises: `BrokerError`; which of them says what was wrong.
        """
        kafka = KafkaDistribution.ensure(self._cache_dir, self._progress)
        java = find_java(self._java)
        jvm = KafkaJvm(java, kafka, self._folder, self._heap_mb)
        lock_fd = self._folder.acquire()
        try:
            self._prepare(jvm)
            spawn = jvm.spawn_daemon if daemon else jvm.spawn_guarded
            self._process, pid = spawn(lock_fd)
        finally:
            os.close(lock_fd)  # the broker's processes hold it now
        self._remember(pid)

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Return when the broker answered a metadata request of our cluster.

        Raises: `BrokerDied`, `PortTaken`, `NoDiskSpace`, `BrokerNotReady`.
        """
        record = self._started()
        deadline = time.monotonic() + timeout_s
        while not answers(LOOPBACK, record.port, record.cluster_id):
            self._raise_if_dead()
            if time.monotonic() > deadline:
                reason = last_words(self._log_tail()) or "it logged nothing"
                raise BrokerNotReady(self.bootstrap_servers, timeout_s, reason)
            time.sleep(_POLL_S)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the broker on the folder, whoever started it.

        SIGTERM first; SIGKILL where it is not gone after `timeout_s`. Returns when
        no process of it is left. Does nothing where none runs.
        """
        record = self._folder.read_record()
        if record is not None and self._folder.is_locked():
            _signal(record.pid, signal.SIGTERM)
            if not _wait_until(self._is_gone, timeout_s):
                _signal(record.pid, signal.SIGKILL)
                _wait_until(self._is_gone, timeout_s)
        self._reap()

    def status(self) -> BrokerStatus:
        """Return what can be seen of the broker, whoever started it."""
        record = self._folder.read_record()
        data_bytes = self._folder.size_bytes()
        if record is None:
            return BrokerStatus(data_bytes=data_bytes)
        running = self._folder.is_locked()
        return BrokerStatus(
            running=running,
            ready=running and answers(LOOPBACK, record.port, record.cluster_id),
            pid=record.pid if running else None,
            bootstrap_servers=f"{LOOPBACK}:{record.port}" if running else None,
            cluster_id=record.cluster_id,
            kafka_version=record.kafka_version,
            data_bytes=data_bytes,
        )

    def __enter__(self) -> Self:
        self.start()
        try:
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _prepare(self, jvm: KafkaJvm) -> None:
        folder = self._folder
        folder.create()
        folder.check_space(self._min_free_bytes)
        cluster_id = folder.claim_cluster(self._expected_cluster)
        ports = self._choose_ports()
        properties = server_properties(folder.kafka, ports)
        folder.server_properties.write_text(properties, "utf-8")
        folder.log4j.write_text(log4j_xml(folder.logs), "utf-8")
        self._record = BrokerRecord(
            pid=os.getpid(),
            port=ports.broker,
            controller_port=ports.controller,
            cluster_id=cluster_id,
            kafka_version=jvm.kafka.version,
        )
        folder.write_record(self._record)
        if not folder.is_formatted():
            self._format(jvm, cluster_id)
        # The last run's log must not explain this run's death.
        folder.server_log.unlink(missing_ok=True)

    def _choose_ports(self) -> Ports:
        last = self._folder.read_record()
        broker = choose_port(self._port, last.port if last else None)
        return Ports(broker, free_port(LOOPBACK, avoid=broker))

    def _format(self, jvm: KafkaJvm, cluster_id: str) -> None:
        self._progress("formatting the broker's data folder")
        done = jvm.format_storage(cluster_id)
        if done.returncode != 0 or not self._folder.is_formatted():
            lines = (done.stdout + done.stderr).splitlines()
            self._raise_dead(done.returncode, lines)

    def _remember(self, pid: int) -> None:
        self._record = replace(self._started(), pid=pid)
        self._folder.write_record(self._record)

    def _started(self) -> BrokerRecord:
        if self._record is None:
            raise BrokerNotRunning(self._folder.root)
        return self._record

    def _raise_if_dead(self) -> None:
        process = self._process
        if process is not None and process.poll() is not None:
            self._raise_dead(process.returncode, self._log_tail())

    def _raise_dead(self, exit_code: int | None, lines: list[str]) -> None:
        record, folder = self._started(), self._folder
        cause = cause_of_death(lines)
        if cause is Cause.PORT_TAKEN:
            raise PortTaken(record.port)
        if cause is Cause.NO_SPACE:
            folder.check_space(self._min_free_bytes)
            raise NoDiskSpace(folder.root, 0, self._min_free_bytes)
        reason = last_words(lines) or "it logged nothing"
        raise BrokerDied(exit_code, reason, folder.server_log)

    def _log_tail(self) -> list[str]:
        return [
            line
            for path in (self._folder.console_log, self._folder.server_log)
            for line in _tail(path)
        ]

    def _is_gone(self) -> bool:
        if self._process is not None:
            self._process.poll()
        return not self._folder.is_locked()

    def _reap(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        process.wait()


def _tail(path: Path) -> list[str]:
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return file.read().decode("utf-8", "replace").splitlines()


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it ended on its own


def _wait_until(done: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True
