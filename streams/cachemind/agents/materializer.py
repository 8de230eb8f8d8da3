"""The materializer: folds the WAL into the stores, one process for all partitions.

1. Cold start: each store is brought close to the log's end in bulk.
2. The group's committed offsets are set to where the stores are, if nobody is in
   the group. They are a hint for operators' tools: the truth is in the stores.
3. Faust delivers the live tail; what it skips is read from the log.
4. On `stop` the batch in hand is committed, the group is left, its offsets are set
   and the stores are closed.

Each materializer has a group of its own: it folds every partition, and a partition
that another member of the group holds is kept up in bulk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from cachemind.agents.app import quiet_logs
from cachemind.agents.checkpointing import Checkpointing
from cachemind.agents.cold_start import cold_start
from cachemind.agents.dead_letters import DeadLetters
from cachemind.agents.first_of import first_of
from cachemind.agents.folding import Decoder, Folder
from cachemind.agents.group_hint import GroupHint
from cachemind.agents.hosted import HostedApp
from cachemind.agents.live import LiveFold
from cachemind.agents.own_thread import OwnThread
from cachemind.agents.rollback import Rollbacks
from cachemind.agents.status import MaterializerStatus
from cachemind.agents.tail_watch import TailWatch
from cachemind.agents.wal_agent import wal_app
from cachemind.agents.watchdog import Watchdog
from cachemind.errors import (
    CacheError,
    InvalidSetting,
    NoProgress,
    StoreError,
    StoreUnavailable,
)
from cachemind.ports import (
    FoldMetrics,
    GroupOffsets,
    LogReader,
    LogWriter,
    OffsetMemory,
    StoreWriter,
)
from cachemind.types import Partition

log = logging.getLogger(__name__)

T = TypeVar("T")

EXIT_DONE: Final = 0
EXIT_STOPPED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_PROGRESS: Final = 3
PATIENCE_S: Final = 60.0
LEAVE_S: Final = 2.5
"""How long each of the three steps of a stop may take: leaving the group, the batch in
hand, the group's offsets. Together they must fit into 10 s."""


def _nothing() -> None:
    """Do nothing; that it ran means that the thread is free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializerDeps:
    """What the materializer stands on.

    `stores` holds the store of every WAL partition; the materializer closes them.
    `reader` is asked from two threads; its waits, and those of `group_offsets`,
    should be shorter than `LEAVE_S`, or a stop while the log is away takes as long.
    `kafka` has librdkafka's names. `stop` is set to end. `patience_s`: `Watchdog`.
    `caught_up` is called once, when every store is close to the log's end.
    `rollbacks` and `checkpointing` are of each partition: a partition without the
    former stops at a rollback, one without the latter makes no checkpoints.
    """

    decoder: Decoder
    reader: LogReader
    stores: Mapping[Partition, StoreWriter]
    dead_letters: LogWriter
    group_offsets: GroupOffsets
    kafka: Mapping[str, str]
    wal_topic: str
    group: str
    metrics: FoldMetrics
    stop: asyncio.Event
    patience_s: float = PATIENCE_S
    offset_memory: OffsetMemory | None = None
    caught_up: Callable[[], None] = _nothing
    rollbacks: Mapping[Partition, Rollbacks] = field(default_factory=dict)
    checkpointing: Mapping[Partition, Checkpointing] = field(default_factory=dict)


async def run_materializer(deps: MaterializerDeps) -> int:
    """Run until `deps.stop` is set or the fold cannot go on; return the exit code.

    0: stopped in order; 1: a partition's fold stopped or a store failed; 2: a
    setting that Faust cannot use; 3: no progress, or Faust gave up: start again.
    """
    return await Materializer(deps).run()


class Materializer:
    """One run of the materializer."""

    def __init__(self, deps: MaterializerDeps) -> None:
        self._deps = deps
        self._stopping = False
        self._fold_thread = OwnThread("fold")
        self._asking_thread = OwnThread("log-end")
        self._folders = _folders(deps)
        self._hint = GroupHint(deps.group_offsets, self._folders, deps.offset_memory)
        self._live = LiveFold(
            self._folders, deps.reader, self._fold_thread, self._should_stop
        )
        self._watch = TailWatch(
            self._folders,
            deps.reader,
            deps.metrics,
            Watchdog(deps.patience_s),
            self._fold_thread,
            self._asking_thread,
            self._should_stop,
        )

    def status(self) -> MaterializerStatus:
        """Return how far each partition is."""
        return self._watch.status()

    async def on_fold_thread(self, do: Callable[[], T]) -> T:
        """Return what `do` returns, called while nothing is being folded.

        Raises: `StoreUnavailable` once the materializer is about to end.
        """
        if self._stopping:
            raise StoreUnavailable("the materializer is about to end")
        return await self._fold_thread.run(do)

    async def run(self) -> int:
        """Run to the end; see `run_materializer`."""
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
            stop.cancel()
            work.cancel()
            await asyncio.wait({work, stop}, timeout=LEAVE_S + 0.5)

    async def _work(self) -> None:
        """Catch up, then fold the live tail until Faust or the fold gives up."""
        deps = self._deps
        app = HostedApp(
            lambda: wal_app(deps.kafka, deps.group, deps.wal_topic, self._live.accept),
            deps.wal_topic,
            lambda: self._asking_thread.run(deps.reader.bounds, Partition(0)),
        )
        await cold_start(
            self._folders.values(), deps.reader, self._fold_thread, self._should_stop
        )
        await self._asking_thread.run(self._hint.begin)
        if not self._stopping:
            await self._asking_thread.run(deps.caught_up)
        await first_of(
            LEAVE_S,
            app.run(),
            self._live.run(),
            self._watch.run(app.held),
        )

    def _should_stop(self) -> bool:
        return self._stopping

    async def _leave(self) -> bool:
        """Finish the batch in hand, set the group's offsets, close the stores.

        Returns whether all of that was done in order.
        """
        self._stopping = True
        settled = await self._fold_thread.finish(_nothing, LEAVE_S)
        if settled:
            await self._asking_thread.finish(self._hint.set, LEAVE_S)
            settled = _closed(self._deps.stores)
        else:
            # A store must not be closed under the thread that writes to it.
            log.error("the fold did not end in %.1f s; stores left open", LEAVE_S)
        self._fold_thread.close()
        self._asking_thread.close()
        return settled


def _folders(deps: MaterializerDeps) -> Mapping[Partition, Folder]:
    letters = DeadLetters(deps.dead_letters, deps.wal_topic)
    count = len(deps.stores)

    def folder(partition: Partition, store: StoreWriter) -> Folder:
        checkpointing = deps.checkpointing.get(partition)
        return Folder(
            partition,
            count,
            store,
            deps.decoder,
            letters,
            deps.metrics,
            deps.rollbacks.get(partition),
            None if checkpointing is None else checkpointing.committed,
        )

    return {
        partition: folder(partition, store) for partition, store in deps.stores.items()
    }


def _exit_code(error: CacheError) -> int:
    match error:
        case InvalidSetting():
            return EXIT_USAGE
        case NoProgress():
            return EXIT_NO_PROGRESS
        case _:
            return EXIT_STOPPED


def _closed(stores: Mapping[Partition, StoreWriter]) -> bool:
    """Close every store; return whether all took it."""
    closed = True
    for partition, store in stores.items():
        try:
            store.close()
        except StoreError:
            log.exception("store %d was not closed in order", partition)
            closed = False
    return closed
