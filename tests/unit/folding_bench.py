"""A log, a store and a dead-letter topic in memory, and a folder between them."""

from __future__ import annotations

from collections import Counter

from cachemind.adapters.clock import ManualClock
from cachemind.adapters.memory_log import MemoryLog
from cachemind.adapters.memory_store import MemoryStore
from cachemind.agents.dead_letters import DeadLetters
from cachemind.agents.folding import Folder
from cachemind.codec.codec import Codec
from cachemind.core.rollback_report import RollbackStatus
from cachemind.core.state import Effect
from cachemind.events import Body
from cachemind.ports import LogRecord
from cachemind.types import Lsn, Namespace, Offset, Partition
from tests.wal_events import ALPHA, BEGAN_NS, envelope

CODEC = Codec()
ZERO = Partition(0)


class Counted:
    """`FoldMetrics` that remembers."""

    def __init__(self) -> None:
        self.events: Counter[tuple[str, Effect]] = Counter()
        self.letters: Counter[str] = Counter()
        self.rollbacks: Counter[RollbackStatus] = Counter()
        self.in_quarantine = -1
        self.lags: dict[Partition, int] = {}
        self.stands: dict[Partition, bool] = {}
        self.applied: list[Offset] = []

    def folded(self, partition: Partition, kind: str, effect: Effect) -> None:
        self.events[kind, effect] += 1

    def dead_lettered(self, partition: Partition, reason: str) -> None:
        self.letters[reason] += 1

    def fold_lag(self, partition: Partition, records: int) -> None:
        self.lags[partition] = records

    def rolled_back(self, partition: Partition, status: RollbackStatus) -> None:
        self.rollbacks[status] += 1

    def quarantined(self, partition: Partition, namespaces: int) -> None:
        self.in_quarantine = namespaces

    def halted(self, partition: Partition, *, stands: bool) -> None:
        self.stands[partition] = stands

    def progressed(self, partition: Partition, applied: Offset) -> None:
        self.applied.append(applied)


class Bench:
    """Everything that a folder of one partition stands on."""

    def __init__(self, partitions: int = 1) -> None:
        clock = ManualClock(BEGAN_NS)
        self.partitions = partitions
        self.wal = MemoryLog(partitions, clock)
        self.dlq = MemoryLog(1, clock)
        self.writer = self.wal.writer()
        self.reader = self.wal.reader()
        self.store = MemoryStore()
        self.metrics = Counted()
        self.appended = 0

    def folder(self, partition: Partition = ZERO) -> Folder:
        """Return a new folder on the store, as after a restart."""
        return Folder(
            partition,
            self.partitions,
            self.store,
            CODEC,
            DeadLetters(self.dlq.writer(), "wal", ack_timeout_s=0.05),
            self.metrics,
        )

    def append(self, *bodies: Body, namespace: Namespace = ALPHA) -> Lsn:
        """Append each body as an event of its own; return the last LSN."""
        lsns = []
        for body in bodies:
            event = envelope(self.appended, body, namespace)
            self.appended += 1
            lsns.append(self.append_raw(namespace.encode(), CODEC.encode(event)))
        return lsns[-1]

    def append_raw(self, key: bytes, value: bytes) -> Lsn:
        """Append bytes as they are, with a header."""
        return self.writer.append(key, value, (("h", b"1"),)).result(0)

    def records(self, partition: Partition = ZERO) -> list[LogRecord]:
        """Return everything on the log."""
        return _everything(self.wal, partition)

    def letters(self) -> list[LogRecord]:
        """Return everything on the dead-letter topic."""
        return _everything(self.dlq, ZERO)


def _everything(log: MemoryLog, partition: Partition) -> list[LogRecord]:
    reader = log.reader()
    first, end = reader.bounds(partition)
    return [r for batch in reader.read(partition, first, end) for r in batch]
