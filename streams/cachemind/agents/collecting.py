"""Gives up what has expired in one partition, in events that the fold applies.

1. *Taken over*: whoever swept this partition before can append to it no more.
2. *Caught up*: the store shows all that is on the log, so also what the former one
   gave up. Nothing is given up twice.
3. *Decided* of each namespace a bounded number of keys at a time, on the timeline that
   the store shows: after a rollback the event is fenced.
4. *Appended*, alone in its transaction.
5. *Folded*, before anything more is decided: the collector is never ahead of the
   fold, and leaves it time for others.

Whatever dies in between: the next one begins at 1, and what was appended is seen at 2.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cachemind.core.collecting import CollectRules, LogClock, collected
from cachemind.core.identifiers import SPAN_BYTES, format_traceparent
from cachemind.core.writing import Writing
from cachemind.errors import CacheError, LogUnavailable
from cachemind.events import EXPIRED, Evicted
from cachemind.ports import Clock, StoreInspector
from cachemind.ports.audit import SoleWriter
from cachemind.ports.collecting import CollectMetrics
from cachemind.ports.commands import Encoder
from cachemind.types import (
    ID_BYTES,
    ExactKey,
    Namespace,
    Offset,
    Partition,
    Principal,
    TraceId,
    WriterId,
)

PRINCIPAL: Final = Principal("collector")
FOLDED_S: Final = 20.0
"""How long the fold may take for one event, or for what is on the log, before the rest
is left to the next sweep."""

POLL_S: Final = 0.02
PAUSE_S: Final = 0.1
"""Between two events, for the fold: at most 5,000 entries a second go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectingDeps:
    """What the sweeping of one partition stands on.

    `log_end` returns the offset after the last record that is above another one, no
    marker of a transaction. The time on `monotonic_ns` is never set. `failpoint` is
    called with each step's name.
    """

    partition: Partition
    view: StoreInspector
    log_end: Callable[[Offset], Offset]
    writer: SoleWriter
    writer_id: WriterId
    codec: Encoder
    clock: Clock
    log_time: LogTime
    random: Callable[[int], bytes]
    rules: CollectRules
    metrics: CollectMetrics
    failpoint: Callable[[str], None]
    monotonic_ns: Callable[[], int] = time.monotonic_ns
    sleep: Callable[[float], None] = time.sleep
    folded_s: float = FOLDED_S


class LogTime:
    """The time by the events of all partitions that a process sweeps; on one thread.

    Of all of them, so that a quiet partition is not thought to be in the past.
    """

    def __init__(self, patience_ns: int) -> None:
        self._patience_ns = patience_ns
        self._newest: dict[Partition, int] = {}
        self._clock: LogClock | None = None

    def told_ns(self, partition: Partition, newest_ns: int, at_ns: int) -> int:
        """Return the time once `newest_ns` is that of the partition's newest event.

        Units: as in `LogClock`.
        """
        self._newest[partition] = newest_ns
        newest_ns = max(self._newest.values())
        if self._clock is None:
            self._clock = LogClock(told_ns=newest_ns, at_ns=at_ns)
        self._clock = self._clock.later(newest_ns, at_ns, self._patience_ns)
        return self._clock.told_ns


class Collecting:
    """Sweeps one partition, again and again; on one thread."""

    def __init__(self, deps: CollectingDeps) -> None:
        self._deps = deps
        self._owned = False
        self._writing = Writing(deps.writer_id, PRINCIPAL, deps.random)

    def sweep(self, should_stop: Callable[[], bool]) -> None:
        """Look at every entry once and give up what has expired.

        Raises: `LogError`, `StoreError`; then sweep again later. Ends early where
        `should_stop`.
        """
        began_ns = self._deps.monotonic_ns()
        try:
            self._sweep(should_stop)
        except CacheError:
            self._owned = False
            raise
        except _Stopping:
            return
        took_ns = self._deps.monotonic_ns() - began_ns
        self._deps.metrics.swept(
            self._deps.partition, took_ns / 1e9, self._deps.clock.now_ns()
        )

    def close(self) -> None:
        """Leave the log and release the store."""
        self._owned = False
        self._deps.writer.close()
        self._deps.view.close()

    def _sweep(self, should_stop: Callable[[], bool]) -> None:
        deps = self._deps
        # First, so that nobody takes over what is not there.
        deps.view.catch_up()
        if not self._owned:
            deps.writer.take_over()
            self._owned = True
            deps.failpoint("collect.taken")
        end = deps.log_end(Offset(deps.view.applied() + 1))
        self._until_folded(Offset(end - 1), should_stop)
        now_ns = self._now_ns()
        for state in deps.view.namespaces():
            self._sweep_namespace(state.namespace, now_ns, should_stop)

    def _sweep_namespace(
        self, namespace: Namespace, now_ns: int, should_stop: Callable[[], bool]
    ) -> None:
        deps = self._deps
        after: ExactKey | None = None
        while deps.view.quarantine(namespace) is None:
            if should_stop():
                raise _Stopping
            found = collected(deps.view.held(namespace, after), now_ns, deps.rules)
            if found.keys:
                self._evict(namespace, found.keys, now_ns, should_stop)
            if found.after is None:
                return
            after = found.after

    def _evict(
        self,
        namespace: Namespace,
        keys: tuple[ExactKey, ...],
        now_ns: int,
        should_stop: Callable[[], bool],
    ) -> None:
        deps, trace = self._deps, TraceId(self._deps.random(ID_BYTES))
        event = self._writing.event(
            namespace,
            Evicted(keys=keys, reason=EXPIRED),
            trace,
            now_ns,
            deps.view.namespace(namespace).timeline,
        )
        parent = format_traceparent(trace, deps.random(SPAN_BYTES)).encode()
        record = (
            namespace.encode(),
            deps.codec.encode(event),
            (("traceparent", parent),),
        )
        deps.failpoint("collect.decided")
        (lsn,) = deps.writer.append_all([record], _nothing)
        deps.failpoint("collect.appended")
        deps.metrics.evicted(deps.partition, EXPIRED, len(keys))
        self._until_folded(lsn.offset, should_stop)
        deps.failpoint("collect.folded")
        deps.sleep(PAUSE_S)

    def _until_folded(self, offset: Offset, should_stop: Callable[[], bool]) -> None:
        """Return once the store shows `offset`. Raises: `LogUnavailable`."""
        deps = self._deps
        until_ns = deps.monotonic_ns() + round(deps.folded_s * 1e9)
        while (applied := deps.view.catch_up()) < offset:
            if should_stop():
                raise _Stopping
            if deps.monotonic_ns() > until_ns:
                raise LogUnavailable(f"the fold is at {applied}, not yet at {offset}")
            deps.sleep(POLL_S)

    def _now_ns(self) -> int:
        """Return the time that both this host and the log's events say it is."""
        deps, newest_ns = self._deps, self._newest_ns()
        told_ns = deps.log_time.told_ns(deps.partition, newest_ns, deps.monotonic_ns())
        return min(told_ns, deps.clock.now_ns())

    def _newest_ns(self) -> int:
        """Return the newest time that an event of the partition came with, 0: none."""
        view = self._deps.view
        rows = (
            view.versions(state.namespace, state.version, state.version)
            for state in view.namespaces()
        )
        return max((row.occurred_at_ns for found in rows for row in found), default=0)


class _Stopping(Exception):
    """The sweep ends here; what is left is for the next one."""


def _nothing() -> None:
    """Do nothing before a commit."""
