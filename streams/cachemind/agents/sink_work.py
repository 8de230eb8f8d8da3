"""What the sink does with the streams that it holds, a turn at a time.

A stream that cannot go on stands still and is tried again, ever more slowly. It loses
nothing: its place is what the target says is sealed, and the topic has the rest. Why
it stands is a metric, and one line of the log however many streams stand for it.

=======================  ==============================================
the target is away       the file that is open is kept and tried again
the disk is full         the same
a write went wrong       the file is made anew from the topic
another sink was faster  what it sealed is looked at, and gone on from
a sealed end is damaged  the stream stands until somebody has put it right
=======================  ==============================================
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Final

from cachemind.agents.sink_stream import SinkStream
from cachemind.core.audit_files import AuditStream
from cachemind.errors import (
    AuditFileDamaged,
    AuditFilesError,
    AuditFilesUnavailable,
    AuditFileTaken,
    AuditScratchLost,
    LogUnavailable,
)
from cachemind.ports import LogRecord
from cachemind.ports.audit_files import SinkMetrics
from cachemind.types import Offset

log = logging.getLogger(__name__)

NEAR_END_RECORDS: Final = 1000
"""What is further from the topic's end is read in bulk, not waited for."""

BULK_S: Final = 2.0
"""One stream's share of a turn; the others must not wait longer."""

FIRST_RETRY_S: Final = 1.0
LONGEST_RETRY_S: Final = 15.0

AWAY: Final = "target-away"
LOG_AWAY: Final = "log-away"
DAMAGED: Final = "damaged"


@dataclass(slots=True)
class _Held:
    """A stream at work. `stands` is why it does not go on, None where it does."""

    stream: SinkStream
    looked_at: Offset = Offset(-1)  # noqa: RUF009 # a NewType is a plain int
    stands: str | None = None
    retry_s: float = FIRST_RETRY_S
    retry_at_s: float = 0.0


class SinkWork:
    """The streams of one process; use it from one thread.

    `stream_of` makes a stream anew each time that it is given to this process.
    `monotonic_s` is a clock that only goes forward. `steps` grows as the work does;
    any thread may look.
    """

    def __init__(
        self,
        stream_of: Callable[[AuditStream], SinkStream],
        metrics: SinkMetrics,
        monotonic_s: Callable[[], float],
        should_stop: Callable[[], bool],
    ) -> None:
        self._stream_of = stream_of
        self._metrics = metrics
        self._monotonic_s = monotonic_s
        self._should_stop = should_stop
        self.steps = 0
        self._held: dict[AuditStream, _Held] = {}
        self._said: set[str] = set()

    def turn(
        self,
        given: Set[AuditStream],
        delivered: Mapping[AuditStream, Sequence[LogRecord]],
        *,
        look: bool,
    ) -> None:
        """Work on the streams that the group gives to this process.

        `delivered` is what came of them. With `look` the topic's ends are asked for,
        what was not delivered is read, and old files are sealed.
        """
        for stream in self._held.keys() - given:
            self._held.pop(stream).stream.drop()
            self._metrics.let_go(stream)
        for stream in sorted(given - self._held.keys(), key=lambda one: one.folder):
            self._held[stream] = _Held(self._stream_of(stream))
        for stream, held in self._held.items():
            if self._should_stop():
                return
            if self._monotonic_s() >= held.retry_at_s:
                records = delivered.get(stream, ())
                self._try(held, partial(self._work, held, records, look=look))
        self._say_what_is_over()

    def finish(self, until_s: float) -> None:
        """Read what is left, and seal all that is open, as far as time allows."""
        for held in self._held.values():
            if held.stands is None and held.stream.ready:
                self._try(held, partial(self._finish, held, until_s))
            held.stream.drop()

    def _try(self, held: _Held, do: Callable[[], None]) -> None:
        self.steps += 1
        try:
            do()
        except AuditFileTaken as error:
            log.info("another sink is at work: %s", error)
            held.stream.drop()
        except AuditScratchLost as error:
            held.stream.drop()
            self._stand(held, AWAY, error)
        except AuditFilesUnavailable as error:
            self._stand(held, AWAY, error)
        except AuditFileDamaged as error:
            held.stream.drop()
            self._stand(held, DAMAGED, error)
        except LogUnavailable as error:
            self._stand(held, LOG_AWAY, error)
        else:
            self._go_on(held)

    def _work(self, held: _Held, records: Sequence[LogRecord], *, look: bool) -> None:
        stream = held.stream
        if not stream.ready:
            stream.resume()
        followed = stream.take_next(records)
        if look or not followed:
            self._look(held, read=not followed)

    def _look(self, held: _Held, *, read: bool) -> None:
        """Compare with the topic's end; read what will not be delivered."""
        stream = held.stream
        first, end = stream.reader.bounds(stream.partition)
        stream.check(first, end)
        left = end - stream.position
        stood = stream.position == held.looked_at
        if left > 0 and (read or stood or left > NEAR_END_RECORDS):
            self._read(stream, end, self._monotonic_s() + BULK_S)
        held.looked_at = stream.position
        stream.tick(at_end=stream.position >= end)
        self._metrics.lag(stream.stream, max(0, end - stream.sealed_to))

    def _read(self, stream: SinkStream, end: Offset, until_s: float) -> None:
        for batch in stream.reader.read(stream.partition, stream.position, end):
            stream.take(batch)
            self.steps += 1
            if self._should_stop() or self._monotonic_s() >= until_s:
                return
        stream.settle(end)

    def _finish(self, held: _Held, until_s: float) -> None:
        stream = held.stream
        first, end = stream.reader.bounds(stream.partition)
        stream.check(first, end)
        if stream.position < end:
            for batch in stream.reader.read(stream.partition, stream.position, end):
                stream.take(batch)
                if self._monotonic_s() >= until_s:
                    break
        stream.seal()

    def _stand(
        self, held: _Held, reason: str, error: AuditFilesError | LogUnavailable
    ) -> None:
        if held.stands != reason:
            self._metrics.stalled(held.stream.stream, reason)
            held.stands, held.retry_s = reason, FIRST_RETRY_S
        if reason not in self._said:
            self._said.add(reason)
            log.error("%s is not sealed: %s", held.stream.stream.folder, error)
        held.retry_at_s = self._monotonic_s() + held.retry_s
        held.retry_s = min(2 * held.retry_s, LONGEST_RETRY_S)

    def _go_on(self, held: _Held) -> None:
        if held.stands is not None:
            self._metrics.stalled(held.stream.stream, None)
            held.stands, held.retry_at_s = None, 0.0

    def _say_what_is_over(self) -> None:
        """Say which reasons hold for no stream any more."""
        hold = {held.stands for held in self._held.values()}
        for reason in self._said - hold:
            log.warning("%s no more: files are sealed again", reason)
            self._said.discard(reason)
