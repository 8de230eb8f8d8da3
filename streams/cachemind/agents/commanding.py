"""Answers the commands of one partition of `requests`, each once.

1. *Taken over*: whoever answered this partition before is shut out, what it had open
   is aborted, and it is asked anew where to go on. So two never answer one command.
2. *Read*: where the answer goes, and what is asked. What cannot be read or answered
   goes to the dead letters, with the offset after it: the partition goes on.
3. *Decided*, by the same functions as over HTTP, once this host has folded all that
   is on the log. What was done before, by the command's id, is not done again.
4. *Appended*: the event, in a transaction of its own. Only the fold can say what came
   of a rollback, and it sees committed records alone.
5. *Answered*: the answer and the offset after the command, in one transaction.

Whatever dies in between: the command is delivered again, found to be done by its id,
and answered. Between 1 and 5 no other can append, so there is one event a command.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cachemind.agents.dead_letters import (
    Reason,
    Rejected,
    dead_letter,
)
from cachemind.agents.reading_commands import (
    PLAIN,
    Unanswerable,
    read_command,
    rejected,
    require_answerable,
)
from cachemind.codec.command_framing import Framing
from cachemind.codec.commands import encode_reply
from cachemind.core.commands import (
    CORRELATION_ID,
    TRACEPARENT,
    Address,
    Command,
    Problem,
    Reply,
    RollbackDone,
    done_of,
    problem_of,
    rehearsed,
    running,
    wish_of,
)
from cachemind.core.grant_topics import RequestTopic
from cachemind.core.identifiers import (
    SPAN_BYTES,
    format_traceparent,
)
from cachemind.core.rollback_goal import Done, Wish, decided, goal_of
from cachemind.core.rollback_report import RollbackReport, Strategy
from cachemind.core.writing import Writing
from cachemind.errors import (
    CacheError,
    LogRejected,
    LogUnavailable,
)
from cachemind.events import RolledBack
from cachemind.ports import Clock, LogRecord
from cachemind.ports.commands import CommandPast, DeadLetter, Encoder, RequestSession
from cachemind.types import (
    ID_BYTES,
    EventId,
    Lsn,
    Namespace,
    Offset,
    TraceId,
    WriterId,
)

log = logging.getLogger(__name__)

CATCH_UP_S: Final = 5.0
WAIT_S: Final = 20.0
"""How long an answer waits for the fold; it says `running` after that."""

POLL_S: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandingDeps:
    """What the answering of one partition stands on.

    `past` gives the past of a namespace's partition, kept open by whoever gives it.
    `failpoint` is called with each step's name. Once it is `stopping` nobody is waited
    for.
    """

    session: RequestSession
    topic: RequestTopic
    past: Callable[[Namespace], CommandPast]
    codec: Encoder
    clock: Clock
    random: Callable[[int], bytes]
    writer: WriterId
    failpoint: Callable[[str], None]
    stopping: Callable[[], bool]
    catch_up_s: float = CATCH_UP_S
    wait_s: float = WAIT_S
    framing: Framing = PLAIN


class Commanding:
    """Answers one partition's commands; on one thread."""

    def __init__(self, deps: CommandingDeps) -> None:
        self._deps = deps
        self._next: Offset | None = None
        self._writing = Writing(deps.writer, deps.topic.principal, deps.random)
        self.tenures = 0
        """How often the partition was taken over."""

    def own(self) -> Offset:
        """Return the offset of the next command, once the partition is ours.

        Raises: `LogUnavailable`.
        """
        if self._next is None:
            self._next = self._deps.session.take_over()
            self.tenures += 1
            self._deps.failpoint("request.taken")
        return self._next

    def lose(self) -> None:
        """Take the partition over again before anything else is done."""
        self._next = None

    def moved(self, after: Offset) -> None:
        """Go on at `after`: what is before is committed."""
        self._next = after

    def handle(self, record: LogRecord) -> None:
        """Return once `record` is answered or buried, by us or by another before.

        Raises: `LogUnavailable`, and then hand it in again; `Ending`, and then it is
        for the next process.
        """
        if record.lsn.offset < self.own():
            return
        try:
            self._settle(record)
        except BaseException:
            self.lose()
            raise
        self.moved(Offset(record.lsn.offset + 1))

    def close(self) -> None:
        """Leave the cluster."""
        self._deps.session.close()

    def _settle(self, record: LogRecord) -> None:
        session, after = self._deps.session, Offset(record.lsn.offset + 1)
        try:
            address, command = self._read(record)
        except Unanswerable as error:
            log.warning("command at %s: %s", record.lsn, error)
            session.bury(self._letter(error.rejected), after)
            return
        reply = self._reply(address, command)
        self._deps.failpoint("request.done")
        try:
            self._answer(address, reply, record.value or b"", after)
        except LogRejected as error:
            log.warning("command at %s: %s", record.lsn, error)
            session.take_over()
            letter = self._letter(rejected(record, Reason.NO_REPLY, str(error)))
            session.bury(letter, after)
        self._deps.failpoint("request.answered")

    def _letter(self, what: Rejected) -> DeadLetter:
        return dead_letter(self._deps.topic.name, what)

    def _answer(
        self, address: Address, reply: Reply, command: bytes, after: Offset
    ) -> None:
        headers = (
            (CORRELATION_ID, address.correlation_id),
            (TRACEPARENT, self._traceparent(reply.trace_id)),
        )
        self._deps.session.answer(
            address.reply_to,
            address.correlation_id,
            self._deps.framing.answered(encode_reply(reply), command),
            headers,
            after,
        )

    def _read(self, record: LogRecord) -> tuple[Address, Command]:
        """Raises: `Unanswerable`."""
        found = read_command(record, self._deps.framing, self._deps.topic.grant)
        require_answerable(record, found[0], self._deps.session.refuses)
        return found

    # ---- what is asked --------------------------------------------------------------

    def _reply(self, address: Address, command: Command) -> Reply:
        trace = address.trace_id or TraceId(self._deps.random(ID_BYTES))
        lsn, body = self._done(command, trace)
        return Reply(
            request_id=command.request_id,
            namespace=command.namespace,
            trace_id=trace,
            lsn=lsn,
            body=body,
        )

    def _done(
        self, command: Command, trace: TraceId
    ) -> tuple[Lsn | None, RollbackDone | Problem]:
        """Do what is asked. Raises: `LogUnavailable` where to begin anew helps."""
        try:
            past = self._deps.past(command.namespace)
            wish, partition = wish_of(command), past.partition
            self._caught_up(past)
            if wish.dry_run:
                return None, self._rehearsed(wish, past, command.request_id)
            decision = decided(wish, past, command.request_id)
            if isinstance(decision, Done):
                return Lsn(partition, decision.report.offset), done_of(decision)
            record = self._record(command.namespace, decision, trace, past)
        except CacheError as error:
            return None, problem_of(error)
        self._deps.failpoint("request.decided")
        try:
            lsn = self._append(command.namespace, record, trace)
        except LogRejected as error:
            self._deps.session.take_over()
            return None, problem_of(error)
        self._deps.failpoint("request.appended")
        return lsn, self._ended(decision, command.namespace, past, lsn)

    def _caught_up(self, past: CommandPast) -> None:
        """Return once all that was on the log is folded. Raises: `LogUnavailable`."""
        past.catch_up()
        end = past.log_end()
        if not self._folded(past, Offset(end - 1), self._deps.catch_up_s):
            raise LogUnavailable(f"the fold is not at {end - 1} yet; try again later")

    def _rehearsed(
        self, wish: Wish, past: CommandPast, request_id: EventId
    ) -> RollbackDone:
        goal = goal_of(wish, past)
        would = past.rehearse(wish.namespace, goal.target, Strategy.FIELD_HASH)
        return rehearsed(request_id, goal, would.delta, would.replayed, would.digest)

    def _record(
        self,
        namespace: Namespace,
        body: RolledBack,
        trace: TraceId,
        past: CommandPast,
    ) -> bytes:
        now_ns, timeline = self._deps.clock.now_ns(), past.state(namespace).timeline
        event = self._writing.event(namespace, body, trace, now_ns, timeline)
        return self._deps.codec.encode(event)

    def _append(self, namespace: Namespace, record: bytes, trace: TraceId) -> Lsn:
        headers = ((TRACEPARENT, self._traceparent(trace)),)
        return self._deps.session.append(namespace.encode(), record, headers)

    def _ended(
        self, body: RolledBack, namespace: Namespace, past: CommandPast, lsn: Lsn
    ) -> RollbackDone | Problem:
        try:
            report = self._report(body, namespace, past, lsn)
        except CacheError as error:
            log.warning("rollback at %s: %s", lsn, error)
            report = None
        if report is None:
            return running(body.rollback_id, body.to_version)
        return done_of(Done(report=report, repeated=False))

    def _report(
        self, body: RolledBack, namespace: Namespace, past: CommandPast, lsn: Lsn
    ) -> RollbackReport | None:
        if not self._folded(past, lsn.offset, self._deps.wait_s):
            return None
        return past.report(namespace, body.rollback_id)

    def _folded(self, past: CommandPast, offset: Offset, wait_s: float) -> bool:
        """Return whether the past shows `offset` within `wait_s`. Raises: `Ending`."""
        until = time.monotonic() + wait_s
        while past.catch_up() < offset:
            if self._deps.stopping():
                raise Ending("the process is about to end")
            if time.monotonic() > until:
                return False
            time.sleep(POLL_S)
        return True

    def _traceparent(self, trace: TraceId) -> bytes:
        span = bytes(SPAN_BYTES)
        while not any(span):
            span = self._deps.random(SPAN_BYTES)
        return format_traceparent(trace, span).encode()


class Ending(Exception):
    """The process ends before a command is answered. No error to tell a client."""
