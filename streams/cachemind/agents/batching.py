"""Answers one partition's commands of the cache, many in one Kafka transaction.

1. *Taken over*, as in `commanding`; then what was answered before is read back, and the
   desk that decides begins anew: it must show all that is on the log.
2. *Read*: what cannot be answered is for the dead letters, what was answered before is
   answered so again.
3. *Foreseen*: upstream is asked, and receipts are waited for, for many commands at
   once and outside of any transaction. What came of it is kept until the command's
   transaction is committed.
4. *Decided*, in order, by the gateway's own code. Events are appended inside of the
   transaction and have their offsets at once.
5. *Committed*: events, answers (to who asked, and to the topic of answers), dead
   letters, and the offset after the last command: all of it or nothing.

Whatever dies or is shut out in between: nothing was seen by anybody, and who owns the
partition next begins at the committed offset. A rollback ends a batch: only the fold
can say what came of it, and it sees committed records alone; see `commanding`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cachemind.agents.commanding import Commanding, Ending
from cachemind.agents.dead_letters import Reason
from cachemind.agents.known_answers import (
    KnownAnswers,
    key_of,
)
from cachemind.agents.outbox import Item, Outbox, OutboxTopics
from cachemind.agents.own_thread import OwnThread
from cachemind.agents.reading_commands import (
    PLAIN,
    Unanswerable,
    read_command,
    rejected,
    require_answerable,
)
from cachemind.codec.command_framing import Framing
from cachemind.core.cache_commands import Foreseeable
from cachemind.core.commands import (
    Reply,
)
from cachemind.errors import LogError
from cachemind.ports import Clock, LogRecord
from cachemind.ports.commands import (
    Asked,
    BatchSession,
    CommandDesk,
    Undeliverable,
)
from cachemind.types import ID_BYTES, Offset, TraceId

log = logging.getLogger(__name__)

MOST_COMMANDS: Final = 256
"""In one transaction."""

MOST_WAITING: Final = 1_024
MOST_WAITING_BYTES: Final = 64 * 2**20
"""Commands that are read while those before them are not ready, about."""

MOST_FORESEEN: Final = 64
"""Commands for which upstream is asked, or has answered, and which are not done."""

RETRY_S: Final = 0.5
NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingDeps:
    """What the answering of one partition stands on; `thread` is the session's.

    `failpoint` is called with each step's name.
    """

    session: BatchSession
    thread: OwnThread
    commanding: Commanding
    desk: CommandDesk
    topics: OutboxTopics
    clock: Clock
    random: Callable[[int], bytes]
    failpoint: Callable[[str], None]
    framing: Framing = PLAIN


class Batching:
    """Answers what comes in; use it on one event loop."""

    def __init__(self, deps: BatchingDeps) -> None:
        self._deps = deps
        self._pending: deque[Item] = deque()
        self._unread: deque[LogRecord] = deque()
        self._known = KnownAnswers()
        self._newest = Offset(-1)
        self._most = MOST_COMMANDS
        self._tenure = 0
        self._open = False
        self._rests = False
        self._getter: asyncio.Task[LogRecord] | None = None

    async def run(self, inbox: asyncio.Queue[LogRecord]) -> None:
        """Answer until cancelled. Raises: what no retry helps."""
        while True:
            if not self._pending and not self._unread:
                self._rests = self._getter is None
                self._unread.append(await self._next(inbox))
                self._rests = False
            try:
                await self._step(inbox)
            except Ending:
                log.info("what is not answered is left to the next process")
                return
            except LogError as error:
                log.warning("commands wait: %s", error)
                self._begin_anew()
                await asyncio.sleep(RETRY_S)

    @property
    def idle(self) -> bool:
        """Return whether all that was taken out of the inbox is answered."""
        return self._rests

    async def close(self) -> None:
        """Keep nothing."""
        if self._getter is not None:
            self._getter.cancel()
        await self._deps.desk.close()

    def _begin_anew(self) -> None:
        # Fewer at a time: what is too much for one transaction is so each time.
        self._most = max(1, self._most // 2)
        self._deps.commanding.lose()
        self._open = False
        for item in self._pending:
            item.foreseen = None

    # ---- 1. taken over --------------------------------------------------------------

    async def _step(self, inbox: asyncio.Queue[LogRecord]) -> None:
        after = await self._owned()
        await self._take_in(inbox)
        self._drop_before(after)
        if not self._pending:
            return
        if self._pending[0].rolls_back:
            await self._roll_back(self._pending[0])
            return
        ready = await self._ready(inbox)
        if ready:
            await self._transact(ready)

    async def _owned(self) -> Offset:
        deps = self._deps
        after = await deps.thread.run(deps.commanding.own)
        if self._tenure != deps.commanding.tenures:
            self._open = False
            self._known = await deps.thread.run(self._read_back)
            self._tenure = deps.commanding.tenures
        if not self._open:
            await deps.desk.open(deps.session.wal)
            self._open = True
        return after

    def _read_back(self) -> KnownAnswers:
        known = KnownAnswers()
        kept_as = self._deps.topics.requests.kept_as
        known.read_back(self._deps.session.answers(), kept_as)
        return known

    def _drop_before(self, after: Offset) -> None:
        """Forget what is answered: by us, or by another meanwhile."""
        while self._pending and self._pending[0].record.lsn.offset < after:
            self._forget(self._pending.popleft())

    def _forget(self, item: Item) -> None:
        if item.asked is not None:
            self._deps.desk.forget(item.asked)

    async def _roll_back(self, item: Item) -> None:
        # The desk must see what the fold makes of it before anything else is decided.
        self._open = False
        await self._deps.thread.run(self._deps.commanding.handle, item.record)
        self._pending.popleft()

    # ---- 2. read --------------------------------------------------------------------

    async def _next(self, inbox: asyncio.Queue[LogRecord]) -> LogRecord:
        getter, self._getter = self._getter, None
        return await (inbox.get() if getter is None else getter)

    async def _take_in(self, inbox: asyncio.Queue[LogRecord]) -> None:
        """Read what has come, and have it foreseen."""
        if self._getter is not None and self._getter.done():
            self._unread.append(await self._next(inbox))
        count, size = self._held()
        while _has_room(count, size) and self._getter is None and not inbox.empty():
            record = inbox.get_nowait()
            self._unread.append(record)
            count, size = count + 1, size + _size(record)
        new = self._new(self._unread)
        self._unread.clear()
        if new:
            self._pending.extend(await self._deps.thread.run(self._read_all, new))
        self._foresee()

    def _held(self) -> tuple[int, int]:
        """Return how many commands wait, and the bytes of their records."""
        waiting = [item.record for item in self._pending] + list(self._unread)
        return len(waiting), sum(map(_size, waiting))

    def _new(self, records: Iterable[LogRecord]) -> list[LogRecord]:
        """Return what was not delivered before: a rebalance has all delivered again."""
        found = []
        for record in records:
            if record.lsn.offset > self._newest:
                self._newest = record.lsn.offset
                found.append(record)
        return found

    def _read_all(self, records: Sequence[LogRecord]) -> list[Item]:
        return [self._read(record) for record in records]

    def _read(self, record: LogRecord) -> Item:
        topic = self._deps.topics.requests
        try:
            address, command = read_command(record, self._deps.framing, topic.grant)
            require_answerable(record, address, self._deps.session.refuses)
        except Unanswerable as error:
            log.warning("command at %s: %s", record.lsn, error)
            return Item(record=record, rejected=error.rejected)
        trace = address.trace_id or TraceId(self._deps.random(ID_BYTES))
        asked = Asked(command=command, trace=trace, caller=topic.caller)
        return Item(record=record, address=address, asked=asked)

    # ---- 3. foreseen ----------------------------------------------------------------

    def _foresee(self) -> None:
        """Begin what takes long, for the first of the commands that wait."""
        left = MOST_FORESEEN
        for item in self._pending:
            if left and item.asked is not None and self._needs_foresight(item):
                left -= 1
                if item.foreseen is None:
                    foreseen = self._deps.desk.foresee(item.asked)
                    item.foreseen = asyncio.ensure_future(foreseen)

    def _needs_foresight(self, item: Item) -> bool:
        asked = item.asked
        if asked is None or item.rejected is not None:
            return False
        if not isinstance(asked.command.body, Foreseeable):
            return False
        return self._known.get(self._key(asked)) is None

    def _key(self, asked: Asked) -> bytes:
        return key_of(asked.command, self._deps.topics.requests.kept_as)

    async def _ready(self, inbox: asyncio.Queue[LogRecord]) -> list[Item]:
        """Return the commands that one transaction is to answer; the first is ready.

        Empty where the first was waited for in vain.
        """
        first = self._pending[0]
        while not self._is_ready(first):
            await self._wait(first, inbox)
            await self._take_in(inbox)
        found: list[Item] = []
        for item in self._pending:
            full = len(found) >= self._most
            if full or item.rolls_back or not self._is_ready(item):
                break
            found.append(item)
        return found

    async def _wait(self, item: Item, inbox: asyncio.Queue[LogRecord]) -> None:
        """Wait until a command is foreseen or expired, or another one comes."""
        assert item.foreseen is not None  # noqa: S101 - it would be ready
        waited: set[asyncio.Future[None] | asyncio.Task[LogRecord]] = {item.foreseen}
        if _has_room(*self._held()):
            if self._getter is None:
                self._getter = asyncio.create_task(inbox.get())
            waited.add(self._getter)
        left_s = self._left_s(item)
        await asyncio.wait(waited, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)

    def _is_ready(self, item: Item) -> bool:
        if not self._needs_foresight(item) or self._left_s(item) == 0:
            return True
        return item.foreseen is not None and item.foreseen.done()

    def _left_s(self, item: Item) -> float | None:
        """Return for how long somebody waits for the answer; None: for ever."""
        address = item.address
        if address is None or address.deadline_ms is None:
            return None
        now_ms = self._deps.clock.now_ns() // NS_PER_MS
        return max(address.deadline_ms - now_ms, 0) / 1_000

    # ---- 4. decided -----------------------------------------------------------------

    async def _transact(self, items: Sequence[Item]) -> None:
        deps = self._deps
        for item in items:
            if item.rejected is None and self._left_s(item) == 0:
                item.rejected = rejected(
                    item.record, Reason.EXPIRED, "its deadline has passed"
                )
        fresh = self._fresh(items)
        try:
            await self._commit(items, fresh)
        except LogError:
            await deps.thread.run(deps.session.give_up)
            raise

    async def _commit(self, items: Sequence[Item], fresh: Sequence[Item]) -> None:
        deps = self._deps
        await deps.thread.run(deps.session.begin)
        replies = await self._decided(fresh)
        deps.failpoint("batch.decided")
        told = dict(zip((id(item) for item in fresh), replies, strict=True))
        outgoing = Outbox(deps.topics, self._known, deps.random, deps.framing)
        for item in items:
            outgoing.put(item, told.get(id(item)))
        after = Offset(items[-1].record.lsn.offset + 1)
        try:
            await deps.thread.run(deps.session.commit, outgoing.records, after)
        except Undeliverable as error:
            culprit = outgoing.items[error.number]
            log.warning("command at %s: %s", culprit.record.lsn, error)
            culprit.rejected = rejected(culprit.record, Reason.NO_REPLY, str(error))
            raise
        deps.failpoint("batch.committed")
        deps.commanding.moved(after)
        outgoing.committed()
        self._most = min(MOST_COMMANDS, 2 * self._most)
        self._drop_before(after)

    def _fresh(self, items: Sequence[Item]) -> list[Item]:
        """Return the commands to be decided: each id once, and none that is known."""
        seen: set[bytes] = set()
        found = []
        for item in items:
            if item.asked is None or item.rejected is not None:
                continue
            key = self._key(item.asked)
            if key not in seen and self._known.get(key) is None:
                seen.add(key)
                found.append(item)
        return found

    async def _decided(self, fresh: Sequence[Item]) -> Sequence[Reply]:
        deps = self._deps
        if not fresh:
            return ()
        asked = [item.asked for item in fresh if item.asked is not None]
        done = threading.Event()
        serving = asyncio.ensure_future(deps.thread.run(deps.session.serve, done))
        try:
            return await deps.desk.decide(asked)
        finally:
            done.set()
            await serving


def _has_room(count: int, size: int) -> bool:
    return count < MOST_WAITING and size < MOST_WAITING_BYTES


def _size(record: LogRecord) -> int:
    return len(record.value or b"")
