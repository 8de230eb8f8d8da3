"""A worker's side of the WAL: group commit, sequence, deadline, breaker."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from cachemind.core.identifiers import format_traceparent
from cachemind.core.operation import hash_of
from cachemind.errors import (
    CacheError,
    InvalidEvent,
    LogError,
    LogRejected,
    LogUnavailable,
)
from cachemind.events import Body, Envelope, Read, Reads
from cachemind.ports import Clock, LogWriter
from cachemind.types import FIRST_TIMELINE, EventId, Lsn, Principal, TraceId
from cachemind_services.gateway.breaker import Breaker
from cachemind_services.gateway.deps import GatewaySettings, RecordEncoder
from cachemind_services.gateway.identity import Ids
from cachemind_services.gateway.metrics import GatewayMetrics

_LOG: Final = logging.getLogger("cachemind.gateway")
MOST_READS: Final = 512
"""Look-ups in one record: far below Kafka's record limit of 1 MB."""


@dataclass(frozen=True, slots=True)
class Appended:
    """An acknowledged event and where it is."""

    lsn: Lsn
    envelope: Envelope


@dataclass(slots=True)
class _Round:
    """The look-ups that one record will carry, and who waits for it."""

    reads: list[Read]
    done: asyncio.Future[Lsn]


class LogLine:
    """What the sessions of one worker know and use up together.

    Whether the log answers, how many look-ups wait for it, and the writer's sequence.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self.breaker = Breaker(
            failures=1, retry_s=settings.wal_retry_s, now=time.monotonic
        )
        self.room = settings.wal_buffer
        self.seq = 0

    @property
    def available(self) -> bool:
        """Return whether the last append was acknowledged in time."""
        return self.breaker.closed

    def recovered(self) -> None:
        """Use the log again: somebody has found that it answers."""
        self.breaker.succeeded()


class WalSession:
    """Appends the events of one namespace; use it on one event loop only.

    While a record of look-ups is in flight the next ones collect, and all that one
    record carries wait on one future.
    """

    def __init__(
        self,
        wal: LogWriter,
        codec: RecordEncoder,
        clock: Clock,
        settings: GatewaySettings,
        metrics: GatewayMetrics,
        ids: Ids,
        line: LogLine | None = None,
    ) -> None:
        """With a `line` it is one of a worker's sessions."""
        self.line = line or LogLine(settings)
        self._wal = wal
        self._codec = codec
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self._ids = ids
        self._loop = asyncio.get_running_loop()
        self._key = settings.namespace.encode()
        self._rounds: deque[_Round] = deque()
        self._reads_in_flight = 0
        self._unanswered: set[asyncio.Future[Lsn]] = set()
        self._scheduled = False
        self._breaker = self.line.breaker
        self.timeline = FIRST_TIMELINE
        self.newest: Lsn | None = None

    @property
    def available(self) -> bool:
        """Return whether the last append was acknowledged in time."""
        return self._breaker.closed

    @property
    def idle(self) -> bool:
        """Return whether every append has its answer."""
        return not self._unanswered

    def read(self, read: Read) -> asyncio.Future[Lsn]:
        """Return the future of the record that carries `read`; never cancel it.

        It raises `LogUnavailable` or `LogRejected`.
        Raises: `LogUnavailable` where the log is away or too many already wait.
        """
        if not self._breaker.closed:
            raise LogUnavailable("the log does not answer")
        return self._collect(read)

    def probe(self, read: Read) -> None:
        """Append `read` to find out whether the log is back; nobody waits for it.

        Without effect while another probe is on its way, or the last was just now.
        """
        if self._breaker.closed or not self._breaker.take():
            return
        try:
            self._collect(read)
        except LogUnavailable:
            self._breaker.released()

    async def append(
        self,
        body: Body,
        trace_id: TraceId,
        principal: Principal | None = None,
        event_id: EventId | None = None,
    ) -> Appended:
        """Return once one event of its own is acknowledged; `principal` asked for it.

        Without an `event_id` it has a new one.
        Raises: `LogUnavailable`, `LogRejected`.
        """
        # After a pause this is a probe as well: there may be no look-ups to send one.
        if not self._breaker.take():
            raise LogUnavailable("the log does not answer")
        done = self._new_future()
        try:
            envelope = self._envelope(body, trace_id, principal, event_id)
            self._send(envelope, done)
        except CacheError:
            self._breaker.released()
            raise
        # A caller that goes away must not take the answer from the others' timer.
        return Appended(await asyncio.shield(done), envelope)

    async def flush(self, timeout_s: float) -> None:
        """Wait until every append so far has its answer, at most `timeout_s`."""
        if self._unanswered:
            await asyncio.wait(set(self._unanswered), timeout=timeout_s)

    def _collect(self, read: Read) -> asyncio.Future[Lsn]:
        if self.line.room <= 0:
            raise LogUnavailable("too many look-ups wait for the log")
        if not self._rounds or len(self._rounds[-1].reads) >= MOST_READS:
            done = self._new_future()
            # Called before those who wait for it: the log has the next record while
            # they answer.
            done.add_done_callback(self._end_round)
            self._rounds.append(_Round([], done))
        group = self._rounds[-1]
        group.reads.append(read)
        self.line.room -= 1
        if not self._reads_in_flight and not self._scheduled:
            # At the end of this turn of the loop: what came together goes together.
            self._scheduled = True
            self._loop.call_soon(self._start_round)
        return group.done

    def _start_round(self) -> None:
        self._scheduled = False
        if self._reads_in_flight or not self._rounds:
            return
        group = self._rounds.popleft()
        self._reads_in_flight = len(group.reads)
        self._metrics.group.observe(self._reads_in_flight)
        body = Reads(items=tuple(group.reads))
        self._send(self._envelope(body, group.reads[0].trace_id), group.done)

    def _end_round(self, _done: asyncio.Future[Lsn]) -> None:
        self.line.room += self._reads_in_flight
        self._reads_in_flight = 0
        self._start_round()

    def _envelope(
        self,
        body: Body,
        trace_id: TraceId,
        principal: Principal | None = None,
        event_id: EventId | None = None,
    ) -> Envelope:
        now_ns = self._clock.now_ns()
        self.line.seq += 1
        return Envelope(
            event_id=event_id or self._ids.event(now_ns),
            namespace=self._settings.namespace,
            trace_id=trace_id,
            principal=principal or self._settings.principal,
            occurred_at_ns=now_ns,
            writer=self._settings.writer,
            writer_seq=self.line.seq,
            timeline=self.timeline,
            op_hash=hash_of(body, now_ns),
            body=body,
        )

    def _send(self, envelope: Envelope, done: asyncio.Future[Lsn]) -> None:
        started = time.perf_counter()
        trace = format_traceparent(envelope.trace_id, self._ids.span()).encode()
        try:
            record = self._codec.encode(envelope)
        except InvalidEvent as error:
            self._failed(done, LogRejected(f"an event cannot be written: {error}"))
            return
        except LogError as error:
            # A schema registry that has not answered yet.
            self._failed(done, error)
            return
        timer = self._loop.call_later(
            self._settings.wal_timeout_s, self._timed_out, done
        )

        def settle(answer: Future[Lsn]) -> None:
            timer.cancel()
            self._settle(done, answer, started)

        def answered(answer: Future[Lsn]) -> None:  # on the writer's thread
            self._loop.call_soon_threadsafe(settle, answer)

        sent = self._wal.append(self._key, record, (("traceparent", trace),))
        sent.add_done_callback(answered)

    def _settle(
        self, done: asyncio.Future[Lsn], answer: Future[Lsn], started: float
    ) -> None:
        error = answer.exception()
        if error is None:
            lsn = answer.result()
            self._breaker.succeeded()
            self._metrics.wal_append.observe(time.perf_counter() - started)
            if self.newest is None or lsn > self.newest:
                self.newest = lsn
            if not done.done():
                done.set_result(lsn)
        elif not done.done():
            self._failed(done, error)

    def _timed_out(self, done: asyncio.Future[Lsn]) -> None:
        if not done.done():
            self._failed(done, LogUnavailable("the log did not answer in time"))

    def _failed(self, done: asyncio.Future[Lsn], error: BaseException) -> None:
        if isinstance(error, LogRejected):
            # Of this record only; says nothing about the next.
            self._metrics.wal_rejected.inc()
            self._breaker.released()
        else:
            self._metrics.wal_unavailable.inc()
            self._breaker.failed()
            _LOG.warning("WAL append failed: %s", error)
        done.set_exception(error)

    def _new_future(self) -> asyncio.Future[Lsn]:
        done: asyncio.Future[Lsn] = self._loop.create_future()
        self._unanswered.add(done)
        done.add_done_callback(self._forget)
        return done

    def _forget(self, done: asyncio.Future[Lsn]) -> None:
        self._unanswered.discard(done)
        if not done.cancelled():
            done.exception()  # in async mode nobody else looks
