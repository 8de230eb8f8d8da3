"""A log, a store, checkpoints and a fold in memory, and a naive model of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from cachemind.adapters.clock import ManualClock
from cachemind.adapters.memory_checkpoints import MemoryCheckpoints
from cachemind.adapters.memory_groups import MemoryGroupOffsets
from cachemind.adapters.memory_log import MemoryLog
from cachemind.adapters.memory_store import MemoryStore
from cachemind.agents.dead_letters import DeadLetters
from cachemind.agents.folding import Folder
from cachemind.agents.past import Sources
from cachemind.agents.placing import ONE_WRITE_BYTES
from cachemind.agents.rollback import RollbackHooks, Rollbacks
from cachemind.codec.codec import Codec
from cachemind.core.digest import digest_of
from cachemind.core.entry_bytes import encode
from cachemind.core.fold import apply
from cachemind.core.rollback_report import Strategy
from cachemind.core.state import Effect, Entry, Hits, NamespaceState
from cachemind.events import Envelope, RolledBack
from cachemind.ports import LogRecord
from cachemind.types import EventId, ExactKey, Lsn, Namespace, Timeline, Version
from tests.fold_cases import PARTITION, T0_NS
from tests.unit.folding_bench import Counted

CODEC = Codec()


class Killed(BaseException):
    """The process died here."""


class RollbackBench:
    """One partition. `die_at` names the failpoint that kills the next fold."""

    def __init__(
        self,
        strategy: Strategy = Strategy.FIELD_HASH,
        one_write_bytes: int = ONE_WRITE_BYTES,
    ) -> None:
        self.log = MemoryLog(1, ManualClock(T0_NS))
        self.store = MemoryStore()
        self.checkpoints = MemoryCheckpoints()
        self.group = MemoryGroupOffsets()
        self.strategy = strategy
        self.one_write_bytes = one_write_bytes
        self.die_at = ""
        self.reached: list[str] = []
        self.folder = self.folder_of(self.store, self.checkpoints)

    @property
    def sources(self) -> Sources:
        return self._sources(self.store, self.checkpoints)

    def append(self, *events: Envelope) -> Lsn:
        """Append each event; return the last LSN."""
        writer = self.log.writer()
        appended = [
            writer.append(event.namespace.encode(), CODEC.encode(event), ()).result(0)
            for event in events
        ]
        return appended[-1]

    def pending(self) -> list[LogRecord]:
        """Return what is not folded yet."""
        reader = self.log.reader()
        _, end = reader.bounds(PARTITION)
        batches = reader.read(PARTITION, self.folder.position, end)
        return [record for batch in batches for record in batch]

    def fold(self, *events: Envelope, most: int = 10**9) -> None:
        """Append and fold; a death leaves what was committed, and a new process."""
        if events:
            self.append(*events)
        try:
            self.folder.fold(self.pending()[:most])
        except Killed:
            self.folder = self.folder_of(self.store, self.checkpoints)

    def rebuilt(self) -> MemoryStore:
        """Return a store folded from the whole log, without any checkpoint."""
        store = MemoryStore()
        fold = self.folder_of(store, MemoryCheckpoints())
        reader = self.log.reader()
        for batch in reader.read(PARTITION, *reader.bounds(PARTITION)):
            fold.fold(batch)
        return store

    def folder_of(self, store: MemoryStore, checkpoints: MemoryCheckpoints) -> Folder:
        hooks = RollbackHooks(
            scratch_group=self.group,
            failpoint=self._failpoint,
            strategy=self.strategy,
            one_write_bytes=self.one_write_bytes,
        )
        return Folder(
            PARTITION,
            1,
            store,
            CODEC,
            DeadLetters(self.log.writer(), "wal"),
            Counted(),
            Rollbacks(self._sources(store, checkpoints), store, hooks),
        )

    def _sources(self, store: MemoryStore, checkpoints: MemoryCheckpoints) -> Sources:
        return Sources(
            partition=PARTITION,
            store=store,
            checkpoints=checkpoints,
            log=self.log.reader(),
            decoder=CODEC,
        )

    def _failpoint(self, name: str) -> None:
        self.reached.append(name)
        if name == self.die_at:
            self.die_at = ""
            raise Killed


class Naive:
    """One namespace with a whole copy of its entries for each version."""

    def __init__(self, namespace: Namespace) -> None:
        self.copies: list[Mapping[ExactKey, Entry]] = [{}]
        self.state = NamespaceState(namespace=namespace)
        self.seen: set[EventId] = set()

    @property
    def head(self) -> Version:
        return Version(len(self.copies) - 1)

    @property
    def timeline(self) -> Timeline:
        return self.state.timeline

    def apply(self, event: Envelope, lsn: Lsn) -> None:
        """Do what `event` says."""
        if isinstance(event.body, RolledBack):
            self._roll_back(event.body)
            return
        step = apply(self.state, _Copy(self.copies[-1]), event, lsn)
        if step.effect is Effect.APPLIED:
            changed = {**self.copies[-1], **step.entries}
            self.copies.append({k: e for k, e in changed.items() if e is not None})
            self.state = replace(step.state, version=self.head)

    def digest(self, version: Version) -> int:
        """Return the digest over the copy of `version`."""
        return digest_of((k, encode(e)) for k, e in self.copies[version].items())

    def _roll_back(self, body: RolledBack) -> None:
        if body.rollback_id in self.seen:
            return
        self.seen.add(body.rollback_id)
        if body.to_version > self.head or body.expected_head not in (-1, self.head):
            return
        self.copies.append(self.copies[body.to_version])
        self.state = replace(
            self.state, version=self.head, timeline=Timeline(self.head)
        )


class _Copy:
    def __init__(self, entries: Mapping[ExactKey, Entry]) -> None:
        self._entries = entries

    def entry(self, key: ExactKey) -> Entry | None:
        return self._entries.get(key)

    def hits(self, key: ExactKey) -> Hits | None:
        del key
        return None

    def entries(self) -> Iterable[Entry]:
        return [self._entries[key] for key in sorted(self._entries)]
