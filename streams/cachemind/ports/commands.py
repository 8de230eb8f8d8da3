"""What the answering of commands needs: the past, and a partition of requests."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from cachemind.core.access import Caller, require_command
from cachemind.core.commands import Command, Reply, Rollback
from cachemind.core.delta import Delta
from cachemind.core.rollback_goal import PastLooks
from cachemind.core.rollback_report import Strategy
from cachemind.core.state import NamespaceState
from cachemind.errors import Forbidden, LogRejected
from cachemind.events import Envelope
from cachemind.ports.log import Headers, LogRecord, LogWriter
from cachemind.types import Lsn, Namespace, Offset, Partition, TraceId, Version

DeadLetter = tuple[bytes, bytes, Headers]
"""Key, value and headers."""


class Rehearsal(Protocol):
    """What a rollback would do."""

    @property
    def delta(self) -> Delta:
        """Return what differs."""
        ...

    @property
    def replayed(self) -> int:
        """Return the number of events replayed."""
        ...

    @property
    def digest(self) -> int:
        """Return the namespace's digest afterwards."""
        ...


class CommandPast(PastLooks, Protocol):
    """The past of one partition's namespaces, of the newest state once caught up."""

    @property
    def partition(self) -> Partition:
        """Return the WAL partition."""
        ...

    def catch_up(self) -> Offset:
        """Show what is folded by now; return the applied offset."""
        ...

    def log_end(self) -> Offset:
        """Return the offset after the last record. Raises: `LogUnavailable`."""
        ...

    def state(self, namespace: Namespace) -> NamespaceState:
        """Return the folded state."""
        ...

    def rehearse(
        self, namespace: Namespace, target: Version, strategy: Strategy
    ) -> Rehearsal:
        """Return what a rollback to `target` would do, validated."""
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


class RequestSession(Protocol):
    """One partition of `requests`, owned. Raises: `LogUnavailable`, `LogRejected`.

    After an error it is owned no more: take it over again.
    """

    def take_over(self) -> Offset:
        """Shut out whoever owned it; return the offset of the next command."""
        ...

    def refuses(self, reply_to: str) -> str | None:
        """Return why no answer may go to that topic, None where it may."""
        ...

    def append(self, key: bytes, value: bytes, headers: Headers) -> Lsn:
        """Return where an event is on the WAL, once committed."""
        ...

    def answer(
        self, topic: str, key: bytes, value: bytes, headers: Headers, after: Offset
    ) -> None:
        """Commit an answer together with the next offset to read."""
        ...

    def bury(self, letter: DeadLetter, after: Offset) -> None:
        """Commit a dead letter together with the next offset to read."""
        ...

    def close(self) -> None:
        """Leave the cluster."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A record for another topic than the WAL.

    `partition` is that of the requests where None has it go by its key.
    """

    topic: str
    key: bytes
    value: bytes
    headers: Headers
    partition: Partition | None = None


class Undeliverable(LogRejected):
    """A topic takes no record of ours; nothing of the transaction is on the log.

    `number` says which of the outgoing records it was.
    """

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


class BatchSession(RequestSession, Protocol):
    """One partition of `requests`, whose commands are answered many at a time.

    In order: `begin`, `serve` while `wal` is appended to, `commit`. After an error it
    is owned no more.
    """

    @property
    def wal(self) -> LogWriter:
        """Return what appends to the WAL inside of the transaction that is open.

        An offset is told as soon as the record has it; readers see the record once
        the transaction is committed, or never.
        """
        ...

    def begin(self) -> None:
        """Open a transaction."""
        ...

    def serve(self, until: threading.Event) -> None:
        """Tell appends how they ended, until told to stop."""
        ...

    def commit(self, records: Sequence[Outgoing], after: Offset) -> None:
        """Commit what was appended, `records` and the next offset to read.

        Raises: `Undeliverable` besides.
        """
        ...

    def give_up(self) -> None:
        """Abort what is open, so that no reader waits for it."""
        ...

    def answers(self) -> Iterator[LogRecord]:
        """Yield what was answered before on this partition: the newest, in order.

        Others' answers may be among them.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A command, as it is to be decided.

    `caller` is None where whoever asks may do everything.
    """

    command: Command
    trace: TraceId
    caller: Caller | None = None

    @property
    def refusal(self) -> Forbidden | None:
        """Return why the caller may not ask for this, None where it may."""
        if self.caller is None:
            return None
        name, namespace = type(self.command.body).__name__, self.command.namespace
        try:
            require_command(self.caller, name, namespace)
        except Forbidden as error:
            if self.caller.namespaces:
                return error
            return Forbidden(error.right, "with auth on, ask by the topics of a grant")
        return None

    @property
    def rolls_back(self) -> bool:
        """Return whether it is for the fold to say what comes of it."""
        return isinstance(self.command.body, Rollback) and self.refusal is None


class CommandDesk(Protocol):
    """Decides the commands of one partition; on one event loop.

    What it has decided holds once its transaction is committed; where that fails it
    is opened again and asked again.
    """

    async def open(self, wal: LogWriter) -> None:
        """Begin, or begin anew: forget what was decided and perhaps not committed.

        Raises: `LogUnavailable` where what is on the log does not show here yet.
        """
        ...

    def foresee(self, asked: Asked) -> Awaitable[None]:
        """Do what takes long and may be done before; once for a command.

        `decide` waits for nobody if this was awaited. Never fails.
        """
        ...

    async def decide(self, asked: Sequence[Asked]) -> Sequence[Reply]:
        """Return an answer to each, in order, with their events appended.

        Raises: `LogError`; then nothing of it may be committed.
        """
        ...

    def forget(self, asked: Asked) -> None:
        """Keep nothing of a command any more: it is answered."""
        ...

    async def close(self) -> None:
        """Release what it holds."""
        ...


class Encoder(Protocol):
    """The writing half of the codec."""

    def encode(self, envelope: Envelope) -> bytes:
        """Return the event's record."""
        ...
