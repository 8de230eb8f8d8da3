"""A batch of events folded over a store that is not written until the end.

Each event sees the effects of the ones before it in the batch, as if every one had
been committed alone. So the batching never shows in the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge as merge_sorted
from types import MappingProxyType
from typing import Final

from cachemind.core.fold import apply
from cachemind.core.requested import (
    NO_REQUESTS,
    Head,
    Remembered,
    Request,
    Requests,
    request_of,
)
from cachemind.core.rollback_report import RollbackReport, RollbackStatus
from cachemind.core.state import (
    Change,
    Entry,
    EntryReader,
    Hits,
    NamespaceState,
    Step,
    VersionRow,
)
from cachemind.core.totals import Changes
from cachemind.events import Envelope
from cachemind.types import ContextKey, EventId, ExactKey, Lsn, Namespace

_NO_HITS: Final[Mapping[ExactKey, Hits]] = MappingProxyType({})

Loader = Callable[[Namespace], tuple[NamespaceState, EntryReader]]
"""Gives what is committed of a namespace."""

RequestsLoader = Callable[[Namespace], Requests]
"""Gives the requests of a namespace that are done and committed."""


def no_requests(namespace: Namespace) -> Requests:
    """Return no requests, whatever the namespace."""
    del namespace
    return NO_REQUESTS


class WorkingSet:
    """The batch so far. Holds what the batch touched, nothing else of the store."""

    def __init__(self, loader: Loader, requests: RequestsLoader = no_requests) -> None:
        self._loader = loader
        self._done = requests
        self._pending: dict[Namespace, _Pending] = {}

    def apply(self, envelope: Envelope, lsn: Lsn) -> Step:
        """Fold one more event and return its step."""
        pending = self._of(envelope.namespace)
        step = apply(pending.state, pending.overlay, envelope, lsn, pending)
        pending.keep(step)
        return step

    def state(self, namespace: Namespace) -> NamespaceState:
        """Return the namespace as the batch so far leaves it."""
        return self._of(namespace).state

    def reader(self, namespace: Namespace) -> EntryReader:
        """Return the entries as the batch so far leaves them."""
        return self._of(namespace).overlay

    def requests(self, namespace: Namespace) -> Requests:
        """Return the requests that are done as the batch so far leaves them."""
        return self._of(namespace)

    def steps(self) -> Mapping[Namespace, Sequence[Step]]:
        """Return the steps of each touched namespace, in log order, to commit."""
        return {name: pending.steps for name, pending in self._pending.items()}

    def _of(self, namespace: Namespace) -> _Pending:
        pending = self._pending.get(namespace)
        if pending is None:
            state, entries = self._loader(namespace)
            pending = _Pending(state, Overlay(entries), self._done(namespace))
            self._pending[namespace] = pending
        return pending


class _Pending:
    """One namespace within a batch; also its `Requests`, those of the batch first."""

    def __init__(
        self, state: NamespaceState, overlay: Overlay, committed: Requests
    ) -> None:
        self.state = state
        self.overlay = overlay
        self.steps: list[Step] = []
        self._committed = committed
        self._requests: dict[bytes, Remembered] = {}
        self._head: Head | None = None

    def head(self) -> Head:
        return self._committed.head() if self._head is None else self._head

    def request(self, event_id: EventId, head: Head) -> Request | None:
        found = self._requests.get(request_of(event_id))
        if found is None or found.head.generation < head.first:
            return self._committed.request(event_id, head)
        return found.request

    def keep(self, step: Step) -> None:
        self.state = step.state
        self.overlay.put(step.entries, step.hits)
        self.steps.append(step)
        if step.request is not None:
            done = request_of(step.request.request.event_id)
            self._requests[done], self._head = step.request, step.request.head


class Overlay:
    """An `EntryReader`: the base's entries with pending steps laid over them."""

    def __init__(self, base: EntryReader) -> None:
        self._base = base
        self._entries: dict[ExactKey, Entry | None] = {}
        self._hits: dict[ExactKey, Hits | None] = {}
        # A fold asks for an entry to decide and again to take it off the totals.
        self._asked: tuple[ExactKey, Entry | None] | None = None

    def put(self, entries: Changes, hits: Mapping[ExactKey, Hits] = _NO_HITS) -> None:
        """Lay what one more event changed over the base."""
        self._entries.update(entries)
        self._hits.update(hits)
        for key, entry in entries.items():
            if entry is None:
                self._hits[key] = None

    def entry(self, key: ExactKey) -> Entry | None:
        """Return the entry at `key`, None where absent."""
        if key in self._entries:
            return self._entries[key]
        asked = self._asked
        if asked is None or asked[0] != key:
            asked = self._asked = (key, self._base.entry(key))
        return asked[1]

    def hits(self, key: ExactKey) -> Hits | None:
        """Return the hit history at `key`, None where it was never served."""
        if key in self._hits:
            return self._hits[key]
        return self._base.hits(key)

    def entries(self) -> Iterable[Entry]:
        """Return every entry of the namespace, in key order."""
        return merge_sorted(
            self._untouched(),
            (entry for _, entry in sorted(self._entries.items()) if entry is not None),
            key=lambda entry: entry.exact_key,
        )

    def _untouched(self) -> Iterator[Entry]:
        for entry in self._base.entries():
            if entry.exact_key not in self._entries:
                yield entry


@dataclass(slots=True)
class Mutations:
    """What a store writes for one namespace: each key once, the last word on it.

    A None means that the row goes away. `touched` says for each (context, exact) key
    whether the entry is there now. `versions` are with the keys that each changed.
    """

    state: NamespaceState | None = None
    entries: dict[ExactKey, Entry | None] = field(default_factory=dict)
    hits: dict[ExactKey, Hits | None] = field(default_factory=dict)
    versions: list[tuple[VersionRow, Sequence[ExactKey]]] = field(default_factory=list)
    reports: list[RollbackReport] = field(default_factory=list)
    requests: list[Remembered] = field(default_factory=list)
    touched: dict[tuple[ContextKey, ExactKey], bool] = field(default_factory=dict)
    placed: bool = False
    """Whether there are changes that are in the store's copy and not named here."""

    @property
    def ended(self) -> RollbackReport | None:
        """Return the last rollback that was not refused.

        It alone decides whether the namespace is in quarantine.
        """
        ends = [r for r in self.reports if r.status is not RollbackStatus.REFUSED]
        return ends[-1] if ends else None

    def put(
        self,
        entries: Mapping[ExactKey, Entry | None],
        removed_contexts: Mapping[ExactKey, ContextKey],
    ) -> None:
        """Take in what an event does to entries; see `Step` for both arguments."""
        self.entries.update(entries)
        for key, context in removed_contexts.items():
            self.touched[context, key] = False
        for key, entry in entries.items():
            if entry is None:
                self.hits[key] = None
            else:
                self.touched[entry.context_key, key] = True

    def changes(self, namespace: Namespace) -> Iterator[Change]:
        """Yield the journal lines, departures before arrivals."""
        for (context, key), present in sorted(
            self.touched.items(), key=lambda item: item[1]
        ):
            yield Change(
                namespace=namespace,
                context_key=context,
                exact_key=key,
                present=present,
            )


def merged(steps: Iterable[Step]) -> Mutations:
    """Return what consecutive steps of one namespace write together."""
    total = Mutations()
    for step in steps:
        total.state = step.state
        total.hits.update(step.hits)
        if step.version_row is not None:
            keys = (*step.placed, *step.entries)
            total.versions.append((step.version_row, keys))
        if step.request is not None:
            total.requests.append(step.request)
        if step.report is not None:
            total.reports.append(step.report)
        total.placed = total.placed or bool(step.placed)
        total.put(step.entries, step.removed_contexts)
    return total
