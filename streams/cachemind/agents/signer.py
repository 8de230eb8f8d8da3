"""The signer: a receipt for each record of the WAL, one process for its partitions.

1. The keys that may sign are learnt from the topic of cuts.
2. The group's committed offsets are set to where the receipts end, if nobody is in the
   group. They are a hint: the truth is in the receipts.
3. The group gives this process its partitions. Each is taken over, brought to the
   log's end in bulk and then signed as Faust delivers; what it skips is read from the
   log. Another process that still holds one of them cannot add to it any more.
4. Who holds partition 0 also makes the cuts.
5. On `stop` the batches in hand are finished and the group is left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import dataclass
from typing import Final

from cachemind.agents.app import quiet_logs
from cachemind.agents.cutter import Cutter
from cachemind.agents.first_of import first_of
from cachemind.agents.held_partition import HeldPartition
from cachemind.agents.hosted import HostedApp
from cachemind.agents.key_watch import KeyWatch
from cachemind.agents.own_thread import OwnThread
from cachemind.agents.signing import PartitionSigner
from cachemind.agents.wal_agent import wal_app
from cachemind.agents.watchdog import Watchdog
from cachemind.errors import (
    CacheError,
    InvalidSetting,
    LogError,
    LogUnavailable,
    NoProgress,
    StepStuck,
)
from cachemind.ports import GroupOffsets, LogReader, LogRecord
from cachemind.ports.audit import AuditMetrics
from cachemind.types import Lsn, Offset, Partition

log = logging.getLogger(__name__)

EXIT_DONE: Final = 0
EXIT_STOPPED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_PROGRESS: Final = 3
PATIENCE_S: Final = 60.0
TICK_S: Final = 1.0
HAND_OVER_TICK_S: Final = 0.1
RETRY_S: Final = 0.5
LEAVE_S: Final = 3.5
"""How long each of the two steps of a stop may take: leaving the group, and the batches
in hand. Together they must fit into 10 s."""

CUTTING: Final = Partition(0)
"""Whoever signs this partition makes the cuts."""


def _nothing() -> None:
    """Do nothing; that it ran means that the thread is free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignerDeps:
    """What the signer stands on.

    `signer_of` makes the signer of a partition, anew each time that it is given to
    this process, and `cutter_of` the cutter. `ends` tells where the receipts of each
    partition end, as the next offset of the WAL. `instance` is this process's name in
    `group`, the same after a restart. `kafka` has librdkafka's names. `stop` is set to
    end. `patience_s`: `Watchdog`.
    """

    signer_of: Callable[[Partition], PartitionSigner]
    ends: Callable[[], Mapping[Partition, Offset]]
    cutter_of: Callable[[], Cutter]
    keys: KeyWatch
    wal: LogReader
    group_offsets: GroupOffsets
    kafka: Mapping[str, str]
    wal_topic: str
    group: str
    instance: str
    metrics: AuditMetrics
    stop: asyncio.Event
    patience_s: float = PATIENCE_S


async def run_signer(deps: SignerDeps) -> int:
    """Run until `deps.stop` is set or signing cannot go on; return the exit code.

    0: stopped in order; 1: no key, or the log refuses receipts; 2: a setting that
    Faust cannot use; 3: no progress, or Faust gave up: start again.
    """
    return await Signer(deps).run()


class Signer:
    """One run of the signer."""

    def __init__(self, deps: SignerDeps) -> None:
        self._deps = deps
        self._stopping = False
        self._asking_thread = OwnThread("log-end")
        self._key_thread = OwnThread("keys")
        self._held: dict[Partition, _Holding] = {}
        self._cutting: _Cutting | None = None
        self._leaving: set[asyncio.Task[bool]] = set()

    async def run(self) -> int:
        """Run to the end; see `run_signer`."""
        quiet_logs()
        code = EXIT_STOPPED
        try:
            code = await self._until_ended()
        finally:
            settled = await self._leave()
        return code if settled else code or EXIT_STOPPED

    async def _until_ended(self) -> int:
        """Return the exit code for the first thing that ends the run."""
        stop = asyncio.create_task(self._deps.stop.wait())
        work = asyncio.create_task(self._work())
        try:
            await asyncio.wait({stop, work}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                return EXIT_DONE
            work.result()
            log.critical("the group consumer gave up")
            return EXIT_NO_PROGRESS
        except CacheError as error:
            log.critical("%s: %s", type(error).__name__, error)
            return _exit_code(error)
        finally:
            self._stopping = True
            for holding in self._held.values():
                holding.part.stop()
            stop.cancel()
            work.cancel()
            await asyncio.wait({work, stop}, timeout=LEAVE_S + 0.5)

    async def _work(self) -> None:
        """Learn the keys, then sign until Faust or a partition gives up."""
        deps = self._deps
        app = HostedApp(
            lambda: wal_app(
                deps.kafka, deps.group, deps.wal_topic, self._accept, deps.instance
            ),
            deps.wal_topic,
            lambda: self._asking_thread.run(deps.wal.bounds, CUTTING),
        )
        await self._patiently(deps.keys.catch_up)
        await self._patiently(self._hint)
        await first_of(
            LEAVE_S,
            app.run(),
            app.watch(deps.patience_s),
            self._hold(app),
            self._watch(),
            self._key_thread.run(deps.keys.follow, self._should_stop),
        )

    async def _patiently(self, ask: Callable[[], None]) -> None:
        while True:
            try:
                return await self._asking_thread.run(ask)
            except LogUnavailable as error:
                log.warning("the signer waits for the log: %s", error)
                await asyncio.sleep(RETRY_S)

    def _hint(self) -> None:
        """Set the group's offsets to where the receipts end, if nobody is in it."""
        try:
            self._deps.group_offsets.commit(self._deps.ends())
        except LogUnavailable:
            raise
        except LogError as error:
            log.info("the group's offsets were left as they are: %s", error)

    def _should_stop(self) -> bool:
        return self._stopping

    # ---- partitions come and go -----------------------------------------------------

    async def _accept(self, record: LogRecord, ack: Callable[[], object]) -> None:
        # Not when it is signed: what the group is told is a hint.
        ack()
        holding = self._held.get(record.lsn.partition)
        if holding is not None:
            holding.part.offer(record)

    async def _hold(self, app: HostedApp) -> None:
        """Sign what the group gives to this process.

        Raises: `LogRejected`, `KeyRefused`.
        """
        while True:
            if app.settled():
                self._adjust(app, app.held())
            for holding in self._held.values():
                if holding.task.done():
                    holding.task.result()
            if self._cutting is not None and self._cutting.task.done():
                self._cutting.task.result()
            await asyncio.sleep(HAND_OVER_TICK_S)

    def _adjust(self, app: HostedApp, given: Set[Partition]) -> None:
        for partition in self._held.keys() - given:
            self._let_go(self._held.pop(partition))
        for partition in given - self._held.keys():
            log.info("partition %d is signed here", partition)
            part = HeldPartition(
                self._deps.signer_of(partition),
                self._deps.wal,
                self._deps.metrics,
                app,
            )
            self._held[partition] = _Holding(
                part, asyncio.create_task(part.run()), Watchdog(self._deps.patience_s)
            )
        if (CUTTING in given) != (self._cutting is not None):
            self._turn_cutting(on=CUTTING in given)

    def _let_go(self, holding: _Holding) -> None:
        log.info("partition %d is signed elsewhere", holding.part.partition)
        holding.task.cancel()
        leaving = asyncio.create_task(holding.part.leave(LEAVE_S))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    def _turn_cutting(self, *, on: bool) -> None:
        if on:
            self._cutting = _Cutting(self._deps.cutter_of())
        elif self._cutting is not None:
            self._cutting.stop()
            self._cutting = None

    # ---- how far it is --------------------------------------------------------------

    async def _watch(self) -> None:
        """Tick until cancelled. Raises: `NoProgress`."""
        answers = True
        while True:
            try:
                for holding in list(self._held.values()):
                    await self._look(holding)
                answers = True
            except LogUnavailable as error:
                if answers:
                    log.warning("the log does not answer: %s", error)
                answers = False
                now_s = asyncio.get_running_loop().time()
                for holding in self._held.values():
                    holding.watchdog.away(now_s)
            await asyncio.sleep(TICK_S)

    async def _look(self, holding: _Holding) -> None:
        part, now_s = holding.part, asyncio.get_running_loop().time()
        if part.broken:
            return
        _, end = await self._asking_thread.run(self._deps.wal.bounds, part.partition)
        position = part.position
        if part.begun:
            self._deps.metrics.signer_lag(part.partition, max(0, end - position))
        if part.waits_for_key:
            holding.watchdog.away(now_s)
        if position < end and holding.watchdog.still(part.partition, position):
            # Not delivered, or nothing but the marks of transactions.
            part.look()
        if holding.watchdog.observe(now_s, part.partition, position, end):
            raise NoProgress(str(Lsn(part.partition, position)), end)

    # ---- the end --------------------------------------------------------------------

    async def _leave(self) -> bool:
        """Finish the batches in hand; return whether that was done in time."""
        self._stopping = True
        ends: list[Awaitable[bool]] = [*self._leaving]
        for holding in self._held.values():
            holding.task.cancel()
            ends.append(holding.part.leave(LEAVE_S))
        if self._cutting is not None:
            ends.append(self._cutting.end(LEAVE_S))
        ends.append(self._key_thread.finish(_nothing, LEAVE_S))
        settled = all(await asyncio.gather(*ends))
        if not settled:
            log.error("signing did not end in %.1f s", LEAVE_S)
        self._key_thread.close()
        self._asking_thread.close()
        return settled


@dataclass(frozen=True, slots=True)
class _Holding:
    """A partition that is signed here."""

    part: HeldPartition
    task: asyncio.Task[None]
    watchdog: Watchdog


class _Cutting:
    """The cutter at work."""

    def __init__(self, cutter: Cutter) -> None:
        self._stopping = False
        self._thread = OwnThread("cutter")
        self.task = asyncio.create_task(self._thread.run(cutter.run, self._should_stop))

    def stop(self) -> None:
        """Have it end, and do not wait."""
        self._stopping = True
        self._thread.close()

    async def end(self, timeout_s: float) -> bool:
        """Return whether it ended in time."""
        self._stopping = True
        ended = await self._thread.finish(_nothing, timeout_s)
        self._thread.close()
        return ended

    def _should_stop(self) -> bool:
        return self._stopping


def _exit_code(error: CacheError) -> int:
    match error:
        case InvalidSetting():
            return EXIT_USAGE
        case NoProgress() | StepStuck():
            return EXIT_NO_PROGRESS
        case _:
            return EXIT_STOPPED
