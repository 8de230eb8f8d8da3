"""The applier: records of one partition in, committed state out.

What happens to a record that cannot be folded depends on the kind of failure:

===========================================  =====================================
bytes that no build can read                 dead letter, then on
an event that breaks its own rules           dead letter, then on
a key that is not its namespace, or a
namespace that belongs in another partition  dead letter, then on
a schema or event type this build lacks      stop: a newer build may know it
a rollback, where nobody can do it           stop: state of the past must be at hand
a store that does not take the commit        stop
===========================================  =====================================

A stop is of this partition alone: others go on, and it is tried again later.

A dead letter is durable before the applied offset moves past its record. A stop first
commits what came before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cachemind.agents.dead_letters import DeadLetters, Reason, Rejected
from cachemind.agents.rollback import Rollbacks
from cachemind.core.fold import kind_of
from cachemind.core.partitioner import partition_of
from cachemind.core.state import Effect, EntryReader, NamespaceState, Step
from cachemind.core.working_set import WorkingSet
from cachemind.errors import (
    FoldStopped,
    InvalidEvent,
    LogRejected,
    UndecodableRecord,
    UnknownSchema,
)
from cachemind.events import Envelope, RolledBack
from cachemind.ports import Decoder as Decoder
from cachemind.ports import FoldMetrics, LogRecord, StoreWriter
from cachemind.types import Lsn, Namespace, Offset, Partition

Commit = Callable[[Offset, Mapping[Namespace, Sequence[Step]]], None]

log = logging.getLogger(__name__)


class Folder:
    """Folds one partition into its store. One thread at a time.

    `position` is the next offset to look at: everything below it is folded or was
    proven absent. Offsets have gaps, so it may be ahead of `applied` + 1.
    """

    def __init__(
        self,
        partition: Partition,
        partitions: int,
        store: StoreWriter,
        decoder: Decoder,
        dead_letters: DeadLetters,
        metrics: FoldMetrics,
        rollbacks: Rollbacks | None = None,
        after_commit: Callable[[int], None] | None = None,
    ) -> None:
        """`rollbacks` does what `RolledBack` says; without it the fold stops there.

        `after_commit` is called with the number of records that were committed.
        """
        self.partition = partition
        self._partitions = partitions
        self._store = store
        self._decoder = decoder
        self._dead_letters = dead_letters
        self._metrics = metrics
        self._rollbacks = rollbacks
        self._after_commit = after_commit
        self.applied = store.applied()
        self.position = Offset(self.applied + 1)
        self.halted: FoldStopped | None = None
        metrics.quarantined(partition, len(store.quarantined()))

    def fold(self, records: Sequence[LogRecord]) -> int:
        """Fold `records`, oldest first; return how many were new.

        They are one commit; a rollback is one of its own, after all before it.

        Records below `position` are dropped: a log gives some of them twice. That
        nothing is between the others is the caller's to know: see `live.fold_live`.
        Raises: `FoldStopped`, `LogUnavailable` (a dead letter was not taken; fold
        the same records again), `StoreError`.
        """
        batch, taken = self._new_batch(), 0
        stopped: FoldStopped | None = None
        for record in records:
            if record.lsn.offset < self.position or record.lsn.offset <= batch.last:
                continue
            try:
                back = self._take(record, batch)
            except FoldStopped as error:
                stopped = error
                break
            if back is not None:
                self._commit(batch)
                self._roll_back(*back, record.lsn)
                taken += batch.taken + 1
                batch = self._new_batch()
        self._commit(batch)
        if stopped is not None:
            raise stopped
        return taken + batch.taken

    def halt(self, error: FoldStopped) -> None:
        """Stand at this partition's next record, whatever comes, until told to go on.

        Somebody must be told, once: it may take a newer build to go on.
        """
        if self.halted is None or str(self.halted) != str(error):
            log.critical("%s; the other partitions go on", error)
        self.halted = error
        self._metrics.halted(self.partition, stands=True)

    def go_on(self) -> None:
        """Fold again."""
        if self.halted is not None:
            log.warning("partition %d is folded again", self.partition)
        self.halted = None
        self._metrics.halted(self.partition, stands=False)

    def settle(self, start: Offset, end: Offset) -> None:
        """Note that the log holds no committed record in [start, end)."""
        if self.position == start:
            self.position = max(self.position, end)

    def _loaded(self, namespace: Namespace) -> tuple[NamespaceState, EntryReader]:
        return self._store.namespace(namespace), self._store.reader(namespace)

    def _new_batch(self) -> _Batch:
        return _Batch(WorkingSet(self._loaded, self._store.requests))

    def _take(
        self, record: LogRecord, batch: _Batch
    ) -> tuple[Envelope, RolledBack] | None:
        """Fold one record into `batch`; return it instead where it is a rollback."""
        try:
            envelope = self._decoded(record, batch)
            if isinstance(envelope.body, RolledBack):
                return envelope, envelope.body
            effect = batch.working.apply(envelope, record.lsn).effect
            batch.effects.append((kind_of(envelope.body), effect))
        except UndecodableRecord as error:
            batch.rejected.append(_rejected(record, Reason.UNDECODABLE, error.reason))
        except _Misplaced as error:
            batch.rejected.append(_rejected(record, Reason.MISPLACED, error.problem))
        except InvalidEvent as error:
            batch.rejected.append(_rejected(record, Reason.INVALID_EVENT, str(error)))
        except UnknownSchema as error:
            raise FoldStopped(str(record.lsn), str(error)) from error
        batch.last = record.lsn.offset
        batch.taken += 1
        return None

    def _roll_back(self, envelope: Envelope, body: RolledBack, lsn: Lsn) -> None:
        """Do a rollback and commit it with its own offset, all or nothing."""
        if self._rollbacks is None:
            raise FoldStopped(
                str(lsn), "this process cannot restore an earlier version"
            )
        batch = self._new_batch()
        step = self._rollbacks.step(envelope, body, lsn)
        batch.keep(envelope, step, lsn)
        self._commit(batch, self._rollbacks.commit)
        if step.report is not None:
            self._metrics.rolled_back(self.partition, step.report.status)
            quarantined = len(self._store.quarantined())
            self._metrics.quarantined(self.partition, quarantined)

    def _decoded(self, record: LogRecord, batch: _Batch) -> Envelope:
        if record.value is None:
            raise UndecodableRecord("it has no value")
        envelope = self._decoder.decode(record.value)
        home = batch.homes.get(envelope.namespace)
        if home is None:
            home = self._home(envelope.namespace)
            batch.homes[envelope.namespace] = home
        if record.key != home.key:
            raise _Misplaced("key", "is not the namespace of the event")
        if record.lsn.partition != home.partition:
            where = f"the namespace belongs in {home.partition}"
            raise _Misplaced("partition", where)
        return envelope

    def _home(self, namespace: Namespace) -> _Home:
        key = namespace.encode()
        return _Home(key, partition_of(key, self._partitions))

    def _commit(self, batch: _Batch, commit: Commit | None = None) -> None:
        if not batch.taken:
            return
        if batch.rejected:
            self._bury(batch)
        (commit or self._store.commit)(batch.last, batch.steps())
        self.applied = batch.last
        self.position = Offset(batch.last + 1)
        for kind, effect in batch.effects:
            self._metrics.folded(self.partition, kind, effect)
        for one in batch.rejected:
            self._metrics.dead_lettered(self.partition, one.reason)
        self._metrics.progressed(self.partition, self.applied)
        if self._after_commit is not None:
            self._after_commit(batch.taken)

    def _bury(self, batch: _Batch) -> None:
        try:
            self._dead_letters.write(batch.rejected)
        except LogRejected as error:
            first = batch.rejected[0].record.lsn
            raise FoldStopped(
                str(first), "the dead-letter topic refuses the record"
            ) from error


class _Misplaced(InvalidEvent):
    """The event is sound but is not where its namespace's events are."""


@dataclass(frozen=True, slots=True)
class _Home:
    """Where the events of a namespace are."""

    key: bytes
    partition: Partition


class _Batch:
    """What has been taken since the last commit."""

    def __init__(self, working: WorkingSet) -> None:
        self.working = working
        self.last = Offset(-1)
        self.taken = 0
        self.effects: list[tuple[str, Effect]] = []
        self.rejected: list[Rejected] = []
        self.homes: dict[Namespace, _Home] = {}
        self._steps: Mapping[Namespace, Sequence[Step]] | None = None

    def keep(self, envelope: Envelope, step: Step, lsn: Lsn) -> None:
        """Make `step` all that this batch consists of."""
        self._steps = {envelope.namespace: [step]}
        self.effects.append((kind_of(envelope.body), step.effect))
        self.last = lsn.offset
        self.taken = 1

    def steps(self) -> Mapping[Namespace, Sequence[Step]]:
        """Return what to commit."""
        return self.working.steps() if self._steps is None else self._steps


def _rejected(record: LogRecord, reason: Reason, detail: str) -> Rejected:
    return Rejected(record=record, reason=reason, detail=detail)
