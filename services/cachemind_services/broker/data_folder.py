"""What a broker's data folder holds, who owns it, and whether it is ours.

broker.lock         locked by every process of the running broker
broker.json         process id, ports, cluster id of the last start
cluster_id          written once, before the folder is formatted
kafka/              Kafka's own log.dirs
logs/               server.log (rotated), console.log
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from cachemind_services.broker.errors import (
    DataFolderInUse,
    DataFolderUnusable,
    ForeignCluster,
    NoDiskSpace,
)
from cachemind_services.broker.server_config import NODE_ID, SERVER_LOG

_META: Final = "meta.properties"
_LOCK_PATIENCE_S: Final = 0.5
_LOCK_RETRY_S: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRecord:
    """What was chosen for the last start on a data folder."""

    port: int
    controller_port: int
    cluster_id: str
    kafka_version: str


class DataFolder:
    """Paths in one data folder, and its lock."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.kafka = self.root / "kafka"
        self.logs = self.root / "logs"
        self.tmp = self.root / "tmp"
        self.server_properties = self.root / "server.properties"
        self.log4j = self.root / "log4j2.xml"
        self.server_log = self.logs / SERVER_LOG
        self.console_log = self.logs / "console.log"
        self._lock = self.root / "broker.lock"
        self._record = self.root / "broker.json"
        self._cluster_id = self.root / "cluster_id"

    def create(self) -> None:
        """Make the folders; empty the one for the JVM's scratch files.

        Raises: `DataFolderUnusable` for a name that Kafka would split.
        """
        if "," in str(self.root):
            raise DataFolderUnusable(self.root, "Kafka takes no comma in its path")
        shutil.rmtree(self.tmp, ignore_errors=True)
        for folder in (self.root, self.kafka, self.logs, self.tmp):
            folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Lock the folder; gives the descriptor whose open copies keep the lock.

        The broker's processes inherit it, so that the folder is free exactly when
        the last of them is gone, however the starter ended.

        Raises: `DataFolderInUse`, which names the process.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not _try_lock(fd, _LOCK_PATIENCE_S):
                raise DataFolderInUse(self.root, self._noted_pid())
            self.note_owner(fd, os.getpid())
            yield fd
        finally:
            os.close(fd)

    def note_owner(self, lock_fd: int, pid: int) -> None:
        """Write down which process to stop or to name."""
        os.ftruncate(lock_fd, 0)
        os.pwrite(lock_fd, f"{pid}\n".encode(), 0)

    def owner(self) -> int | None:
        """Return the process id of who holds the folder, `None` where nobody does.

        While a broker starts, that is its starter; then it is the JVM.
        """
        try:
            fd = os.open(self._lock, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return None if _try_lock(fd, 0) else self._noted_pid()
        finally:
            os.close(fd)

    def _noted_pid(self) -> int | None:
        text = self._lock.read_text("ascii").strip()
        return int(text) if text else None

    def read_record(self) -> BrokerRecord | None:
        """Return the record of the last start, if there was one."""
        try:
            return BrokerRecord(**json.loads(self._record.read_text("utf-8")))
        except FileNotFoundError:
            return None

    def write_record(self, record: BrokerRecord) -> None:
        """Replace the record of the last start."""
        _write_atomically(self._record, json.dumps(asdict(record)) + "\n")

    def is_formatted(self) -> bool:
        """Return whether Kafka's storage was formatted here."""
        return (self.kafka / _META).exists()

    def claim_cluster(self, expected: str | None) -> str:
        """Return the folder's cluster id, made up on the first start.

        Raises: `ForeignCluster` where the folder, what Kafka wrote into it and
        `expected` do not agree.
        """
        if not self._cluster_id.exists():
            if self.is_formatted():
                found = self._meta()["cluster.id"]
                raise ForeignCluster(self.root, "cluster_id", "ours", found)
            _write_atomically(self._cluster_id, (expected or new_cluster_id()) + "\n")
        ours = self._cluster_id.read_text("utf-8").strip()
        if expected is not None and expected != ours:
            raise ForeignCluster(self.root, "cluster_id", expected, ours)
        if self.is_formatted():
            self._check_meta(ours)
        return ours

    def check_space(self, needed_bytes: int) -> None:
        """Raise `NoDiskSpace` where less than `needed_bytes` is free."""
        free_bytes = shutil.disk_usage(self.root).free
        if free_bytes < needed_bytes:
            raise NoDiskSpace(self.root, free_bytes, needed_bytes)

    def size_bytes(self) -> int:
        """Return how much disk Kafka's data takes (allocated, not apparent)."""
        total = 0
        for folder, _, files in os.walk(self.kafka):
            for name in files:
                try:
                    total += (Path(folder) / name).stat().st_blocks * 512
                except FileNotFoundError:
                    continue  # a running broker deletes segments
        return total

    def _check_meta(self, cluster_id: str) -> None:
        meta = self._meta()
        for field, expected in (("cluster.id", cluster_id), ("node.id", str(NODE_ID))):
            found = meta.get(field, "nothing")
            if found != expected:
                raise ForeignCluster(self.root, field, expected, found)

    def _meta(self) -> dict[str, str]:
        lines = (self.kafka / _META).read_text("utf-8").splitlines()
        pairs = (line.partition("=") for line in lines if not line.startswith("#"))
        return {name.strip(): value.strip() for name, _, value in pairs}


def new_cluster_id() -> str:
    """Return a random cluster id in Kafka's form: URL-safe base64 of a UUID."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):  # Kafka's tools would take it for an option
            return text


def _try_lock(fd: int, patience_s: float) -> bool:
    # Patience, because whoever asks for the owner holds the lock for an instant.
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOCK_RETRY_S)
        else:
            return True


def _write_atomically(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, "utf-8")
    partial.replace(path)
