"""The past of one partition's namespaces, from a store, its checkpoints and the log."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from cachemind.agents.past import Sources, Unwatched, entries_at
from cachemind.agents.rehearsal import RollbackPreview, preview, version_delta
from cachemind.core.delta import Delta
from cachemind.core.rollback import LOG_START, bases
from cachemind.core.rollback_report import (
    Quarantine,
    RollbackProgress,
    RollbackReport,
    Strategy,
)
from cachemind.core.snapshots import SnapshotManifest
from cachemind.core.state import Entry, NamespaceState, VersionRow
from cachemind.core.timeline import History
from cachemind.errors import (
    InvalidEvent,
    LogUnavailable,
    UndecodableRecord,
    UnknownSchema,
)
from cachemind.events import RolledBack
from cachemind.ports import LogRecord, StoreView
from cachemind.types import (
    EMPTY,
    EventId,
    ExactKey,
    Lsn,
    Namespace,
    Offset,
    Partition,
    Version,
)
from cachemind_services.bootstrap.log_end import records_end

REHEARSAL_S: Final = 25.0
"""How long one rehearsal may take: somebody waits for it, and others behind."""


SEARCH_S: Final = 3.0
"""How long a record is looked for among those that are not folded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """What of the past is not in the store, and how to let go of it."""

    snapshot: Callable[[str], SnapshotManifest | None]
    progress: Callable[[], RollbackProgress | None]
    close: Callable[[], None]


class StoredPast:
    """The gateway's `TimeTravel`, over a view that nobody else catches up."""

    def __init__(
        self,
        view: StoreView,
        sources: Sources,
        elsewhere: Elsewhere,
        rehearsal_s: float = REHEARSAL_S,
    ) -> None:
        """`sources` reads from `view`."""
        self._view = view
        self._sources = sources
        self._elsewhere = elsewhere
        self._rehearsal_s = rehearsal_s

    @property
    def partition(self) -> Partition:
        """Return the WAL partition."""
        return self._sources.partition

    def catch_up(self) -> Offset:
        """Show what is folded by now; return the applied offset."""
        return self._view.catch_up()

    def log_end(self) -> Offset:
        """Return the offset after the last record. Raises: `LogUnavailable`."""
        above = Offset(self._view.applied() + 1)
        return records_end(self._sources.log, self._sources.partition, above)

    def state(self, namespace: Namespace) -> NamespaceState:
        """Return the folded state."""
        return self._view.namespace(namespace)

    def history(self, namespace: Namespace) -> History:
        """Return the rollbacks and the head."""
        return self._view.history(namespace)

    def versions(
        self, namespace: Namespace, first: Version, last: Version
    ) -> Sequence[VersionRow]:
        """Return the history rows in [first, last], in order."""
        return self._view.versions(namespace, first, last)

    def quarantine(self, namespace: Namespace) -> Quarantine | None:
        """Return why the namespace is not served, None where it is."""
        return self._view.quarantine(namespace)

    def is_quarantined(self, namespace: Namespace) -> bool:
        """Return whether the namespace must not be served."""
        return self.quarantine(namespace) is not None

    def report(
        self, namespace: Namespace, rollback_id: EventId
    ) -> RollbackReport | None:
        """Return how a rollback ended, None where it did not yet."""
        return self._view.rollback_report(rollback_id, namespace)

    def met(self, namespace: Namespace, rollback_id: EventId) -> bool:
        """Return whether a rollback was folded, its report kept or not."""
        return self._view.rollback_met(rollback_id, namespace)

    def pending(self, namespace: Namespace, rollback_id: EventId) -> Lsn | None:
        """Return where a rollback's record is that is not folded yet, None for none.

        Raises: `LogUnavailable`, also where too much is not folded to look through.
        """
        log, partition = self._sources.log, self._sources.partition
        first, end = log.bounds(partition)
        start = Offset(max(first, self._view.applied() + 1))
        until = time.monotonic() + SEARCH_S
        for batch in log.read(partition, start, end) if start < end else ():
            for record in batch:
                if self._is_record_of(namespace, rollback_id, record):
                    return record.lsn
            if time.monotonic() > until:
                raise LogUnavailable(f"{end - start} records are not folded yet")
        return None

    def progress(self) -> RollbackProgress | None:
        """Return how far the rollback is that the fold works on, None for none."""
        return self._elsewhere.progress()

    def reaches(self, namespace: Namespace, version: Version) -> bool:
        """Return whether checkpoints and log still lead to `version`.

        Whether they are sound shows when the way is gone. Raises: `LogUnavailable`.
        """
        if version == EMPTY:
            return True
        history = self._view.history(namespace)
        if not self._view.versions(namespace, version, version):
            return False
        kept = self._sources.checkpoints.bases(namespace)
        if bases(history, version, kept)[0] != LOG_START:
            return True
        return self._is_on_log(namespace, history.lineage(version)[0].first)

    def begins(self, namespace: Namespace) -> Version:
        """Return the oldest version of the head's lineage that something leads to.

        Raises: `LogUnavailable`.
        """
        history = self._view.history(namespace)
        lineage = history.lineage(history.head)
        if not lineage or self._is_on_log(namespace, lineage[0].first):
            return EMPTY
        kept = self._sources.checkpoints.bases(namespace)
        found = bases(history, history.head, kept)[:-1]
        return min((base.version for base in found), default=history.head)

    def _is_on_log(self, namespace: Namespace, version: Version) -> bool:
        """Return whether the log still has the event of `version` and all after it."""
        rows = self._view.versions(namespace, version, version)
        begins = self._sources.log.bounds(self._sources.partition)[0]
        return bool(rows) and begins <= rows[0].offset

    def rehearse(
        self, namespace: Namespace, target: Version, strategy: Strategy
    ) -> RollbackPreview:
        """Return what a rollback to `target` would do, validated; changes nothing."""
        watch = _Deadline(time.monotonic() + self._rehearsal_s)
        return preview(self._sources, namespace, target, strategy, watch)

    def difference(self, namespace: Namespace, one: Version, other: Version) -> Delta:
        """Return what leads from the entries of `one` to those of `other`."""
        return version_delta(self._sources, namespace, one, other)

    def entry_at(
        self, namespace: Namespace, version: Version, key: ExactKey
    ) -> Entry | None:
        """Return the entry at `key` as of `version`, None where there was none."""
        return entries_at(self._sources, namespace, version, {key}).entries[key]

    def snapshot(self, name: str) -> SnapshotManifest | None:
        """Return the newest snapshot of this name or id, None where there is none."""
        return self._elsewhere.snapshot(name)

    def _is_record_of(
        self, namespace: Namespace, rollback_id: EventId, record: LogRecord
    ) -> bool:
        try:
            event = self._sources.decoder.decode(record.value or b"")
        except (UndecodableRecord, UnknownSchema, InvalidEvent):
            return False  # the fold's to deal with
        body = event.body
        return (
            isinstance(body, RolledBack)
            and body.rollback_id == rollback_id
            and event.namespace == namespace
        )

    def close(self) -> None:
        """Release files and connections."""
        self._view.close()
        self._elsewhere.close()


class _Deadline(Unwatched):
    """Ends a rebuild that takes too long."""

    def __init__(self, until: float) -> None:
        self._until = until

    def replayed(self, events: int) -> None:
        if time.monotonic() > self._until:
            raise LogUnavailable(f"too slow: gave up after {events} events")
