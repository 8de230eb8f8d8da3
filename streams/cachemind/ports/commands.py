"""What the answering of commands needs: the past, and a partition of requests."""

from __future__ import annotations

from typing import Protocol

from cachemind.core.delta import Delta
from cachemind.core.rollback_goal import PastLooks
from cachemind.core.rollback_report import Strategy
from cachemind.core.state import NamespaceState
from cachemind.events import Envelope
from cachemind.ports.log import Headers
from cachemind.types import Lsn, Namespace, Offset, Partition, Version

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


class Encoder(Protocol):
    """The writing half of the codec."""

    def encode(self, envelope: Envelope) -> bytes:
        """Return the event's record."""
        ...
