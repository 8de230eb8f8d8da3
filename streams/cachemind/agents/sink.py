"""The sink: copies receipts and cuts into sealed files, for its group's partitions.

1. The group gives this process its partitions, of both audit topics.
2. What each stream's target says is sealed is where it goes on: the group's offsets
   are a hint for operators' tools.
3. What is far from the topic's end is read in bulk; near it Faust delivers, and what
   it skips is read from the topic.
4. A step that does not end, and a group that does not say what is held, end the
   process: a target that answers a byte at a time keeps every time limit.
5. On `stop` the group is left, and what is open is sealed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cachemind.agents.app import quiet_logs
from cachemind.agents.first_of import first_of
from cachemind.agents.hosted import HostedApp
from cachemind.agents.own_thread import OwnThread
from cachemind.agents.sink_app import sink_app
from cachemind.agents.sink_stream import SinkStream
from cachemind.agents.sink_work import SinkWork
from cachemind.agents.watchdog import Watchdog
from cachemind.core.audit_files import AuditStream
from cachemind.errors import CacheError, InvalidSetting, StepStuck
from cachemind.ports import LogReader, LogRecord
from cachemind.ports.audit_files import SinkMetrics
from cachemind.types import Offset, Partition

log = logging.getLogger(__name__)

EXIT_DONE: Final = 0
EXIT_STOPPED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_PROGRESS: Final = 3
LOOK_S: Final = 1.0
"""How often the topics' ends are asked for, and the files' age is looked at."""

TURN_S: Final = 0.2
INBOX_RECORDS: Final = 5000
"""What is delivered beyond that before it is taken is read from the topic."""

LEAVE_S: Final = 2.5
FINISH_S: Final = 4.0
"""For leaving the group, and for sealing what is open: both must fit into 10 s."""

CUTS: Final = AuditStream(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkDeps:
    """What the sink stands on.

    `stream_of` makes a stream of files, `receipts` reads the topic of receipts. `kafka`
    has librdkafka's names. `stop` is set to end. No step of the work, a file on its
    way to the target among them, may take longer than `patience_s`.
    """

    stream_of: Callable[[AuditStream], SinkStream]
    receipts: LogReader
    kafka: Mapping[str, str]
    receipts_topic: str
    cuts_topic: str
    group: str
    metrics: SinkMetrics
    stop: asyncio.Event
    patience_s: float


async def run_sink(deps: SinkDeps) -> tuple[int, bool]:
    """Run until `deps.stop` is set; return the exit code, and whether all has ended.

    0: stopped; 2: a setting that Faust cannot use; 3: Faust gave up, or the work stands
    still: start again. All has not ended where a request to the target is still under
    way.
    """
    return await Sink(deps).run()


class Sink:
    """One run of the sink."""

    def __init__(self, deps: SinkDeps) -> None:
        self._deps = deps
        self._stopping = False
        self._turning = False
        self._thread = OwnThread("sink")
        self._asking_thread = OwnThread("log-end")
        self._inbox: dict[AuditStream, list[LogRecord]] = {}
        self._work = SinkWork(
            deps.stream_of, deps.metrics, time.monotonic, self._should_stop
        )

    async def run(self) -> tuple[int, bool]:
        """Run to the end; see `run_sink`."""
        quiet_logs()
        code, settled = EXIT_STOPPED, False
        try:
            code = await self._until_ended()
        finally:
            settled = await self._leave()
        return code, settled

    async def _until_ended(self) -> int:
        stop = asyncio.create_task(self._deps.stop.wait())
        work = asyncio.create_task(self._run())
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
            stop.cancel()
            work.cancel()
            await asyncio.wait({work, stop}, timeout=LEAVE_S + 0.5)

    async def _run(self) -> None:
        deps = self._deps
        app = HostedApp(
            lambda: sink_app(
                deps.kafka,
                deps.group,
                {
                    deps.receipts_topic: self._offer_receipt,
                    deps.cuts_topic: lambda record: self._offer(CUTS, record),
                },
            ),
            deps.receipts_topic,
            lambda: self._asking_thread.run(deps.receipts.bounds, Partition(0)),
        )
        await first_of(
            LEAVE_S,
            app.run(),
            app.watch(deps.patience_s),
            self._turns(app),
            self._watch(),
        )

    async def _turns(self, app: HostedApp) -> None:
        """Take turns at the streams until cancelled."""
        looked_s = -LOOK_S
        given: set[AuditStream] = set()
        while True:
            if app.settled():
                given = self._given(app)
            delivered = self._taken()
            look = time.monotonic() - looked_s >= LOOK_S
            if look:
                looked_s = time.monotonic()
            if look or delivered:
                self._turning = True
                await self._thread.run(self._work.turn, given, delivered, look=look)
                self._turning = False
            await asyncio.sleep(TURN_S)

    async def _watch(self) -> None:
        """Tick until cancelled. Raises: `StepStuck`."""
        watchdog = Watchdog(self._deps.patience_s)
        while True:
            now_s, steps = asyncio.get_running_loop().time(), self._work.steps
            wanted = steps + 1 if self._turning else steps
            if watchdog.observe(now_s, Partition(0), Offset(steps), Offset(wanted)):
                raise StepStuck("a step of the sink", self._deps.patience_s)
            await asyncio.sleep(LOOK_S)

    def _given(self, app: HostedApp) -> set[AuditStream]:
        receipts = {AuditStream(p) for p in app.held(self._deps.receipts_topic)}
        return receipts | ({CUTS} if app.held(self._deps.cuts_topic) else set())

    def _offer_receipt(self, record: LogRecord) -> None:
        self._offer(AuditStream(record.lsn.partition), record)

    def _offer(self, stream: AuditStream, record: LogRecord) -> None:
        waiting = self._inbox.setdefault(stream, [])
        if len(waiting) < INBOX_RECORDS:
            waiting.append(record)

    def _taken(self) -> Mapping[AuditStream, Sequence[LogRecord]]:
        taken, self._inbox = self._inbox, {}
        return taken

    def _should_stop(self) -> bool:
        return self._stopping

    async def _leave(self) -> bool:
        """Seal what is open; return whether that ended in time."""
        self._stopping = True
        until_s = time.monotonic() + FINISH_S / 2
        settled = await self._thread.finish(
            lambda: self._work.finish(until_s), FINISH_S
        )
        if not settled:
            log.error("sealing did not end in %.1f s: it is done anew", FINISH_S)
        self._thread.close()
        self._asking_thread.close()
        return settled


def _exit_code(error: CacheError) -> int:
    match error:
        case InvalidSetting():
            return EXIT_USAGE
        case StepStuck():
            return EXIT_NO_PROGRESS
        case _:
            return EXIT_STOPPED
