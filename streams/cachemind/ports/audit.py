"""What the signer and the cutter need from outside, besides keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from cachemind.ports.keys import SigningKey
from cachemind.ports.log import Headers
from cachemind.receipts import KeyId, KeyRole
from cachemind.types import Lsn, Partition


class SoleWriter(Protocol):
    """Appends to one partition, several records at once, and nobody else does.

    Use it from one thread.
    """

    def take_over(self) -> None:
        """End every other writer of this partition; what it has open is aborted.

        What is committed afterwards is the end of the partition until somebody else
        takes over. Raises: `LogUnavailable`, `LogRejected`.
        """
        ...

    def append_all(
        self,
        records: Sequence[tuple[bytes, bytes, Headers]],
        before_commit: Callable[[], None],
        /,
    ) -> Sequence[Lsn]:
        """Return where the (key, value, headers) are, once all are committed.

        `before_commit` is called when nothing but the commit is left to do; what it
        raises takes them all away again. After any error the writer must take over
        again, and look: whether the records are there may not be known.

        Raises: `LogUnavailable`, `LogRejected`, and what `before_commit` raises.
        """
        ...

    def close(self) -> None:
        """Leave the log; what is open is aborted."""
        ...


class HeldKeys(Protocol):
    """The keys that this process can sign with; asked from several threads."""

    def find(self, role: KeyRole, key_id: KeyId) -> SigningKey | None:
        """Return the key of that id; None where it is not held.

        Raises: `KeyUnavailable`, `KeyRefused`.
        """
        ...

    def first(self, role: KeyRole) -> SigningKey | None:
        """Return the key to begin with while the log of cuts names none.

        Raises: `KeyUnavailable`, `KeyRefused`.
        """
        ...


class HostMemory(Protocol):
    """A few bytes that this host keeps over restarts; losing them must do no harm."""

    def load(self) -> bytes | None:
        """Return what was saved last, None where nothing was.

        Raises: `StoreUnavailable`.
        """
        ...

    def save(self, content: bytes) -> None:
        """Replace what is kept. Raises: `StoreUnavailable`."""
        ...


class AuditMetrics(Protocol):
    """Where signer and cutter report; called from several threads."""

    def signed(self, partition: Partition, receipts: int) -> None:
        """So many more receipts are committed."""
        ...

    def unreadable(self, partition: Partition) -> None:
        """One record could not be decoded; its receipt says so."""
        ...

    def signer_lag(self, partition: Partition, records: int) -> None:
        """`records` at most are committed on the log and have no receipt yet."""
        ...

    def stopped(self, partition: Partition, reason: str) -> None:
        """A partition's receipts do not go on; `reason` is one of few words."""
        ...

    def let_go(self, partition: Partition) -> None:
        """Another process has the partition now."""
        ...

    def cut(self, receipts: int, took_s: float) -> None:
        """A cut over so many new receipts is committed.

        `took_s` has passed since the oldest of them was seen.
        """
        ...

    def cutter_stopped(self, reason: str) -> None:
        """No cut is signed any more; `reason` is one of few words."""
        ...

    def key_event_refused(self) -> None:
        """A key event on the log does not hold and has no effect."""
        ...
