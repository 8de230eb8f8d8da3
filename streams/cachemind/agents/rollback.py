"""The doing of a rollback at its place on the log.

1. *met*: the namespace is fenced, so that no reader serves what may be voided.
2. *base opened*: the newest sound checkpoint on the target's lineage; the scratch
   group's committed offset is set to the offset after it.
3. *replayed*: the events from there to the target, for the keys that may differ.
4. *validated*: the state that would result is the one that history recorded. What is
   too much for one write is in a copy of the store by then, see `placing`.
5. It is committed with the offset of its record, whole: see `folding`.

Where a step fails the next older checkpoint is tried and at last the log's start.
Where all fail the namespace is in quarantine on this host: its version arithmetic
goes on as everywhere else, its entries are not to be served.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cachemind.agents.past import Sources
from cachemind.agents.placing import ONE_WRITE_BYTES, Placing
from cachemind.agents.rehearsal import prepared
from cachemind.core.delta import ChangeKind
from cachemind.core.fold import apply, restored, unchanged
from cachemind.core.identifiers import NS_PER_MS
from cachemind.core.rollback import Base
from cachemind.core.rollback_report import (
    NO_BASE,
    REASON_CHARS,
    RollbackPhase,
    RollbackProgress,
    RollbackReport,
    RollbackStatus,
    Strategy,
)
from cachemind.core.state import Effect, Step
from cachemind.errors import LogError, RollbackRejected, UnknownVersion
from cachemind.events import Envelope, RolledBack
from cachemind.ports import (
    GroupOffsets,
    RollbackProgressBoard,
    ShadowStore,
    StoreWriter,
)
from cachemind.types import (
    EventId,
    Lsn,
    Namespace,
    Offset,
    Version,
)

log = logging.getLogger(__name__)

VALID: Final = "valid"
VERDICT_CHARS: Final = 1000


class NoBoard:
    """A `RollbackProgressBoard` that nobody looks at."""

    def show(self, progress: RollbackProgress) -> None:
        """Do nothing."""

    def clear(self) -> None:
        """Do nothing."""


def no_failpoint(name: str) -> None:
    """Go on."""


def no_time() -> int:
    """Return the time of a fold that nobody measures."""
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackHooks:
    """What the doing of rollbacks is connected to.

    `scratch_group` has its committed offset rewound. `failpoint` is called with each
    step's name. `monotonic_ns` measures the duration in the report. What restores more
    than `one_write_bytes` goes through a copy of the store.
    """

    scratch_group: GroupOffsets | None = None
    board: RollbackProgressBoard = field(default_factory=NoBoard)
    failpoint: Callable[[str], None] = no_failpoint
    monotonic_ns: Callable[[], int] = no_time
    strategy: Strategy = Strategy.FIELD_HASH
    one_write_bytes: int = ONE_WRITE_BYTES


class Rollbacks:
    """Turns each rollback that one partition's fold meets into its step."""

    def __init__(
        self, sources: Sources, store: StoreWriter, hooks: RollbackHooks | None = None
    ) -> None:
        """`sources` reads from `store`, which is fenced and not written to here."""
        self._sources = sources
        self._store = store
        self._hooks = hooks or RollbackHooks()
        self._shadow: ShadowStore | None = None

    def step(self, envelope: Envelope, body: RolledBack, lsn: Lsn) -> Step:
        """Return what the rollback `envelope` at `lsn` does to its namespace.

        Everything before it is committed; the step is to be given to `commit`.
        Raises: `LogUnavailable`, `StoreError`; then nothing has happened and it can be
        done again.
        """
        hooks, namespace = self._hooks, envelope.namespace
        hooks.failpoint("rollback.met")
        self._store.fence(namespace, lsn.offset)
        hooks.failpoint("rollback.fenced")
        state, entries = self._store.namespace(namespace), self._store.reader(namespace)
        if self._store.rollback_met(body.rollback_id, namespace):
            return unchanged(state)
        step = apply(state, entries, envelope, lsn)
        if step.effect is not Effect.APPLIED:
            return step
        began_ns = hooks.monotonic_ns()
        try:
            return self._restored(envelope, body, lsn, began_ns)
        except (RollbackRejected, UnknownVersion) as error:
            log.error("rollback at %s: %s is in quarantine: %s", lsn, namespace, error)  # noqa: TRY400
            report = self._report(body, lsn, step, began_ns, str(error))
            return replace(step, report=report)

    def commit(
        self, applied: Offset, steps: Mapping[Namespace, Sequence[Step]]
    ) -> None:
        """Commit the last step with the offset of its record, all or nothing.

        Raises: `StoreUnavailable`.
        """
        self._hooks.failpoint("rollback.before-commit")
        shadow, self._shadow = self._shadow, None
        (shadow or self._store).commit(applied, steps)
        self._hooks.failpoint("rollback.after-commit")
        self._hooks.board.clear()

    def _restored(
        self, envelope: Envelope, body: RolledBack, lsn: Lsn, began_ns: int
    ) -> Step:
        hooks, namespace = self._hooks, envelope.namespace
        watch = _Watch(self._sources, hooks, body.rollback_id, namespace, lsn.offset)

        def placing() -> Placing:
            return Placing(
                self._store, namespace, hooks.one_write_bytes, hooks.failpoint
            )

        ready = prepared(
            self._sources, namespace, body.to_version, hooks.strategy, watch, placing
        )
        watch.validated()
        done, placed = ready.restoration, ready.placed
        self._shadow = placed.shadow
        step = restored(done.after, envelope, body, lsn, placed.entries, placed.left)
        report = self._report(body, lsn, step, began_ns, VALID)
        return replace(
            step,
            placed=placed.placed,
            report=replace(
                report,
                status=RollbackStatus.COMMITTED,
                restored=done.counts[ChangeKind.RESTORED],
                removed=done.counts[ChangeKind.REMOVED],
                changed=done.counts[ChangeKind.CHANGED],
                replayed=ready.replayed,
                base=ready.base,
            ),
        )

    def _report(
        self, body: RolledBack, lsn: Lsn, step: Step, began_ns: int, verdict: str
    ) -> RollbackReport:
        return RollbackReport(
            rollback_id=body.rollback_id,
            namespace=step.state.namespace,
            offset=lsn.offset,
            status=RollbackStatus.QUARANTINED,
            from_version=Version(step.state.version - 1),
            to_version=body.to_version,
            new_version=step.state.version,
            restored=0,
            removed=0,
            changed=0,
            replayed=0,
            base=NO_BASE,
            digest=step.state.digest,
            strategy=self._hooks.strategy,
            verdict=verdict[:VERDICT_CHARS],
            duration_ms=(self._hooks.monotonic_ns() - began_ns) // NS_PER_MS,
            reason=body.reason[:REASON_CHARS],
        )


class _Watch:
    """Passes on how one rollback goes: failpoints, progress, the scratch group."""

    def __init__(
        self,
        sources: Sources,
        hooks: RollbackHooks,
        rollback_id: EventId,
        namespace: Namespace,
        offset: Offset,
    ) -> None:
        self._sources = sources
        self._hooks = hooks
        self._progress = RollbackProgress(
            rollback_id=rollback_id,
            namespace=namespace,
            offset=offset,
            phase=RollbackPhase.PLANNING,
            base=NO_BASE,
            replayed=0,
            total=0,
        )
        hooks.board.show(self._progress)

    def base_opened(self, base: Base, versions: int) -> None:
        self._hooks.failpoint("rollback.base-opened")
        self._rewind(Offset(base.offset + 1))
        self._show(
            phase=RollbackPhase.REPLAYING,
            base=base.offset,
            replayed=0,
            total=versions,
        )

    def replayed(self, events: int) -> None:
        self._show(replayed=events)

    def rebuilt(self) -> None:
        self._hooks.failpoint("rollback.replayed")
        self._show(phase=RollbackPhase.VALIDATING)

    def validated(self) -> None:
        self._hooks.failpoint("rollback.validated")
        self._show(phase=RollbackPhase.COMMITTING)

    def _show(self, **changes: Any) -> None:
        self._progress = replace(self._progress, **changes)
        self._hooks.board.show(self._progress)

    def _rewind(self, offset: Offset) -> None:
        """Set the scratch group to where the replay begins, for all to see."""
        group = self._hooks.scratch_group
        if group is None:
            return
        try:
            group.commit({self._sources.partition: offset})
        except LogError as error:
            log.warning("the rollback group's offset was not set: %s", error)
