"""Finding a receipt, and what proves it, by trace or by WAL record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cachemind.ports.log import LogRecord
from cachemind.receipts import CutIndex, Seq
from cachemind.types import Lsn, Namespace, Offset, Partition, Sha256, TraceId


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundReceipt:
    """A receipt as the audit topic has it: the exact bytes of a `SignedReceipt`."""

    partition: Partition
    seq: Seq
    record: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CutProof:
    """What shows that a receipt is under a cut, and the cut under its checkpoint.

    The first cut that covers the receipt. `record` is the exact bytes of its
    `CutsRecord`; `path` leads from the receipt to its partition's root, `cut_path`
    from the cut to the root that the checkpoint names (RFC 9162 section 2.1.3).
    """

    index: CutIndex
    record: bytes
    path: tuple[Sha256, ...]
    cut_path: tuple[Sha256, ...]


class ReceiptFinder(Protocol):
    """A reader's side of an index of receipts. Raises: `StoreUnavailable` throughout.

    What is shown is what the owner had written at the last `catch_up`. Receipts that
    the index has dropped, as it is bounded, are not found.
    """

    def catch_up(self) -> None:
        """Show what the owner has written since."""
        ...

    def changed(self) -> bool:
        """Return whether the owner seems to have written since `catch_up`."""
        ...

    def of_trace(
        self, namespace: Namespace, trace: TraceId, after: int, limit: int
    ) -> Sequence[FoundReceipt]:
        """Return receipts in which a trace of `namespace` is named, by their order.

        At most `limit`, with a seq above `after`.
        """
        ...

    def of_source(self, source: Lsn) -> FoundReceipt | None:
        """Return the receipt of a WAL record."""
        ...

    def proof(self, found: FoundReceipt) -> CutProof | None:
        """Return what proves a receipt, None until a cut covers it."""
        ...

    def key_events(self) -> Sequence[tuple[CutIndex, bytes]]:
        """Return the leaves of all key events, each with its place, in order."""
        ...

    def close(self) -> None:
        """Release the files."""
        ...


class ReceiptIndex(Protocol):
    """The owner's side: takes in the audit topics, in order and by position.

    Each call is written whole or not at all. One thread a partition, and one for the
    cuts. Raises: `StoreUnavailable`.
    """

    def receipt_offsets(self) -> Mapping[Partition, Offset]:
        """Return the next offset to read of each partition of the audit topic."""
        ...

    def cut_offset(self) -> Offset:
        """Return the next offset to read of the topic of cuts."""
        ...

    def add_receipts(self, records: Sequence[LogRecord]) -> bool:
        """Take in records of the audit topic, in order within each partition.

        Returns False where the topic begins after its first receipt and no cut is
        known that has what is missing: then nothing was taken in.
        """
        ...

    def add_cuts(self, records: Sequence[LogRecord]) -> None:
        """Take in records of the topic of cuts, in order.

        What is no leaf, or a cut that is not where it says, is left out.
        """
        ...

    def close(self) -> None:
        """Flush and release the lock."""
        ...
