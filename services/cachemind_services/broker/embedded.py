"""One real Kafka broker as a child process, or as a daemon."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cachemind_services.broker.class_archive import archive_options
from cachemind_services.broker.data_folder import BrokerRecord, DataFolder
from cachemind_services.broker.diagnosis import last_words
from cachemind_services.broker.distribution import (
    KafkaDistribution,
    Progress,
    silent,
)
from cachemind_services.broker.errors import BrokerNotReady, BrokerNotRunning
from cachemind_services.broker.java import find_java
from cachemind_services.broker.jvm import KafkaJvm
from cachemind_services.broker.postmortem import death_of, folder_error, log_tail
from cachemind_services.broker.readiness import answers
from cachemind_services.broker.server_config import LOOPBACK
from cachemind_services.broker.storage import prepare

DEFAULT_HEAP_MB: Final = 384
MIN_FREE_MB: Final = 256
READY_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 8.0
_KILL_TIMEOUT_S: Final = 5.0
_POLL_S: Final = 0.05


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

    As a context manager it is started and ready inside the block. The JVM ends with
    the process that started it, unless it was started as a daemon. Not for use by
    two threads at a time.
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
        ready_timeout_s: float = READY_TIMEOUT_S,
        progress: Progress = silent,
    ) -> None:
        """Remember the settings.

        `port` 0 is the port used last on this folder if it is free, else any free
        one. `java` is a Java 17+ to use instead of the one from pip. `cluster_id`
        is what the folder's must be.
        """
        self._folder = DataFolder(data_dir)
        self._port = port
        self._java = java
        self._heap_mb = heap_mb
        self._cache_dir = cache_dir
        self._expected_cluster = cluster_id
        self._min_free_mb = min_free_mb
        self._ready_timeout_s = ready_timeout_s
        self._progress = progress
        self._training = False
        # Without the second compiler: with it the broker took 65 us of a core a
        # request under load, of which a good part to compile; without it 33.
        self._options = ["-XX:TieredStopAtLevel=1"]
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._record: BrokerRecord | None = None

    @property
    def data_dir(self) -> Path:
        """The data folder, absolute."""
        return self._folder.root

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect. Raises: `BrokerNotRunning` before a start."""
        return f"{LOOPBACK}:{self._started().port}"

    @property
    def pid(self) -> int:
        """The JVM's process id. Raises: `BrokerNotRunning` before a start."""
        self._started()
        return self._pid

    @property
    def cluster_id(self) -> str:
        """The cluster's id. Raises: `BrokerNotRunning` before a start."""
        return self._started().cluster_id

    def fetch(self) -> KafkaDistribution:
        """Do all that needs network or is done once; return the verified Kafka.

        Raises: `JarCorrupt`, `KafkaNotFetched`, `JavaUnusable`.
        """
        return self._jvm().kafka

    def start(self, *, daemon: bool = False) -> None:
        """Start the JVM; `wait_ready` says when it serves.

        1. Fetch and verify the jars, look at Java.
        2. Lock the folder, check that it is ours and has space.
        3. Choose ports, write the configuration, format on the first start.
        4. Start the JVM, which inherits the lock.

        Raises: `BrokerError`; which of them says what was wrong.
        """
        jvm = self._jvm()
        try:
            with self._folder.locked() as lock_fd:
                self._reap()  # of an earlier start, which must be dead
                self._launch(jvm, lock_fd, daemon=daemon)
        except OSError as error:
            raise folder_error(self._folder, error) from error

    def wait_ready(self) -> None:
        """Return when the broker answered a metadata request of our cluster.

        Raises: `BrokerDied`, `PortTaken`, `DiskFull`, `BrokerNotReady`.
        """
        record = self._started()
        timeout_s = self._ready_timeout_s
        deadline = time.monotonic() + timeout_s
        while not answers(LOOPBACK, record.port, record.cluster_id):
            self.raise_if_dead()
            if time.monotonic() > deadline:
                reason = last_words(log_tail(self._folder)) or "it logged nothing"
                raise BrokerNotReady(self.bootstrap_servers, timeout_s, reason)
            time.sleep(_POLL_S)

    def raise_if_dead(self) -> None:
        """Raise what killed the broker that we started, if it is dead.

        Raises: `BrokerDied`, `PortTaken`, `DiskFull`.
        """
        process = self._process
        if process is not None and process.poll() is not None:
            lines = log_tail(self._folder)
            raise death_of(self._folder, self._started(), process.returncode, lines)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the broker on the folder, whoever started it.

        SIGTERM first; SIGKILL where it is not gone after `timeout_s`. Returns when
        no process of it is left. Does nothing where none runs.
        """
        pid = self._folder.owner()
        if pid is not None:
            _signal(pid, signal.SIGTERM)
            if not _wait_until(self._is_gone, timeout_s):
                self._progress("the broker does not stop by itself; killing it")
                _signal(pid, signal.SIGKILL)
                _wait_until(self._is_gone, _KILL_TIMEOUT_S)
        self._reap()

    def status(self) -> BrokerStatus:
        """Return what can be seen of the broker, whoever started it."""
        record = self._folder.read_record()
        data_bytes = self._folder.size_bytes()
        if record is None:
            return BrokerStatus(data_bytes=data_bytes)
        pid = self._folder.owner()
        running = pid is not None
        return BrokerStatus(
            running=running,
            ready=running and answers(LOOPBACK, record.port, record.cluster_id),
            pid=pid,
            bootstrap_servers=f"{LOOPBACK}:{record.port}" if running else None,
            cluster_id=record.cluster_id,
            kafka_version=record.kafka_version,
            data_bytes=data_bytes,
        )

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self._stop_ours()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop_ours()

    def _launch(self, jvm: KafkaJvm, lock_fd: int, *, daemon: bool) -> None:
        self._record = prepare(
            self._folder,
            jvm,
            port=self._port,
            cluster_id=self._expected_cluster,
            min_free_bytes=self._min_free_mb * 2**20,
        )
        spawn = jvm.spawn_daemon if daemon else jvm.spawn_guarded
        self._process, self._pid = spawn(lock_fd)
        if self._pid:  # 0: no JVM came up, `raise_if_dead` will say why
            self._folder.note_owner(lock_fd, self._pid)

    def _stop_ours(self) -> None:
        # A start may have failed because the folder is another process's.
        if self._process is not None:
            self.stop()

    def _jvm(self) -> KafkaJvm:
        java = find_java(self._java)
        kafka = KafkaDistribution.ensure(self._cache_dir, self._progress)
        options = list(self._options)
        if not self._training:
            options += archive_options(kafka, java, self._train, self._progress)
        return KafkaJvm(java, kafka, self._folder, self._heap_mb, tuple(options))

    def _train(self, options: Sequence[str]) -> None:
        with tempfile.TemporaryDirectory(prefix="cachemind-train-") as scratch:
            trained = EmbeddedBroker(
                Path(scratch), java=self._java, cache_dir=self._cache_dir
            )
            trained._training = True
            trained._options = list(options)
            with trained:
                return

    def _started(self) -> BrokerRecord:
        if self._record is None:
            raise BrokerNotRunning(self._folder.root)
        return self._record

    def _is_gone(self) -> bool:
        if self._process is not None:
            self._process.poll()
        return self._folder.owner() is None

    def _reap(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        process.wait()


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
