"""The collector: sweeps the partitions that its group gives it, one after the other.

1. The group says which partitions are swept here. That is all that it is for: nothing
   is delivered, since what there is to sweep is in this host's stores.
2. Each of them is swept once an interval, on one thread, and seldom enough to be at
   rest most of the time.
3. What cannot be swept just now (no store yet, the log or the fold away) is swept the
   next time.
4. On `stop` the step in hand is finished and the group is left.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import faust
from faust.types import StreamT

from cachemind.agents.app import build_app, quiet_logs, raw_topic
from cachemind.agents.first_of import first_of
from cachemind.agents.hosted import HostedApp
from cachemind.agents.own_thread import OwnThread
from cachemind.errors import CacheError, InvalidSetting, LogError, StoreError
from cachemind.ports.collecting import CollectMetrics
from cachemind.types import Partition

log = logging.getLogger(__name__)

EXIT_DONE: Final = 0
EXIT_STOPPED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_PROGRESS: Final = 3
TICK_S: Final = 0.2
AT_REST: Final = 9
"""After a sweep it rests so many times as long as that had the processor, or longer."""

LEAVE_S: Final = 2.5
FINISH_S: Final = 5.0
"""For leaving the group, and for the step in hand: both must fit into 10 s."""


class Sweeper(Protocol):
    """Sweeps one partition; see `Collecting`."""

    def sweep(self, should_stop: Callable[[], bool]) -> None:
        """Look at every entry once. Raises: `LogError`, `StoreError`."""
        ...

    def close(self) -> None:
        """Leave the log and release the store."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorDeps:
    """What the collector stands on.

    `open_sweeper` makes the sweeper of a partition, anew each time that it is given to
    this process. `ask_log` raises `LogUnavailable` while the log does not answer.
    `instance` is this process's name in `group`, the same after a restart. `kafka` has
    librdkafka's names. `patience_s`: see `HostedApp.watch`.
    """

    open_sweeper: Callable[[Partition], Sweeper]
    ask_log: Callable[[], object]
    kafka: Mapping[str, str]
    topic: str
    group: str
    instance: str
    interval_s: float
    metrics: CollectMetrics
    stop: asyncio.Event
    patience_s: float


async def run_collector(deps: CollectorDeps) -> int:
    """Sweep until `deps.stop` is set; return the exit code.

    0: stopped in order; 1: the step in hand did not end; 2: a setting that Faust
    cannot use; 3: Faust gave up: start again.
    """
    quiet_logs()
    asking, sweeps = OwnThread("log-end"), Sweeps(deps)
    try:
        app = HostedApp(
            lambda: collector_app(deps.kafka, deps.group, deps.topic, deps.instance),
            deps.topic,
            lambda: asking.run(deps.ask_log),
        )
        await first_of(
            LEAVE_S,
            app.run(),
            app.watch(deps.patience_s),
            _follow(app, sweeps),
            sweeps.run(),
            _until(deps.stop),
        )
    except InvalidSetting as error:
        log.critical("%s", error)
        return EXIT_USAGE
    except CacheError as error:
        log.critical("%s: %s", type(error).__name__, error)
        return EXIT_NO_PROGRESS
    finally:
        settled = await sweeps.close()
        asking.close()
    if deps.stop.is_set():
        return EXIT_DONE if settled else EXIT_STOPPED
    log.critical("the group consumer gave up")
    return EXIT_NO_PROGRESS


def collector_app(
    settings: Mapping[str, str], group: str, topic: str, instance: str
) -> faust.App:
    """Return an app that holds partitions of `topic`; what is delivered is dropped.

    Raises: `InvalidSetting`.
    """
    app = build_app(settings, group, commits=False, instance=instance)

    async def drop(stream: StreamT[bytes]) -> None:
        async for _ in stream.events():
            pass

    app.agent(raw_topic(app, topic))(drop)
    return app


async def _until(stop: asyncio.Event) -> None:
    await stop.wait()


async def _follow(app: HostedApp, sweeps: Sweeps) -> None:
    """Tell `sweeps` what the group gives, until cancelled."""
    while True:
        if app.settled():
            held = app.held()
            for partition in held:
                # Again and again: a rebalance ends it.
                app.hold_back(partition)
            sweeps.given = held
        await asyncio.sleep(TICK_S)


def rest_s(interval_s: float, worked_s: float) -> float:
    """Return how long to rest after so much work: of this host's, not of the fold's."""
    return max(interval_s, AT_REST * worked_s)


class Sweeps:
    """The sweepers of the partitions that are `given`, and when it is their turn."""

    def __init__(self, deps: CollectorDeps) -> None:
        self.given: Set[Partition] = frozenset()
        self._deps = deps
        self._thread = OwnThread("collector")
        self._sweepers: dict[Partition, Sweeper] = {}
        self._troubled: set[Partition] = set()
        self._stopping = False

    async def run(self) -> None:
        """Sweep what is given, every interval, until cancelled."""
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            await self._let_go(self._sweepers.keys() - self.given)
            if self.given and loop.time() >= due_s:
                worked_s = 0.0
                for number in sorted(self.given):
                    worked_s += await self._thread.run(self._sweep, number)
                due_s = loop.time() + rest_s(self._deps.interval_s, worked_s)
            await asyncio.sleep(TICK_S)

    async def close(self) -> bool:
        """End the step in hand; return whether that and the rest ended in time."""
        self._stopping = True
        settled = await self._thread.finish(self._close_all, FINISH_S)
        if not settled:
            log.error("a sweep did not end in %.1f s", FINISH_S)
        self._thread.close()
        return settled

    async def _let_go(self, gone: Set[Partition]) -> None:
        for number in gone:
            log.info("partition %d is swept elsewhere", number)
            await self._thread.run(self._sweepers.pop(number).close)

    def _sweep(self, number: Partition) -> float:
        """Return for how many seconds the sweep had the processor."""
        began_s = time.thread_time()
        if not self._should_stop(number):
            self._try(number)
        return time.thread_time() - began_s

    def _try(self, number: Partition) -> None:
        if number not in self._sweepers:
            log.info("partition %d is swept here", number)
            self._sweepers[number] = self._deps.open_sweeper(number)
        try:
            self._sweepers[number].sweep(partial(self._should_stop, number))
        except (LogError, StoreError) as error:
            self._failed(number, error)
        else:
            self._troubled.discard(number)

    def _failed(self, number: Partition, error: CacheError) -> None:
        reason = "log" if isinstance(error, LogError) else "store"
        self._deps.metrics.failed(number, reason)
        # Once: it may be so for as long as the log is away.
        if number not in self._troubled:
            log.warning("partition %d is swept later: %s", number, error)
        self._troubled.add(number)

    def _should_stop(self, number: Partition) -> bool:
        return self._stopping or number not in self.given

    def _close_all(self) -> None:
        while self._sweepers:
            self._sweepers.popitem()[1].close()
