"""Decisions of the cutter: when a cut is due, and what it may say.

Nothing is signed on the strength of hashes that were kept in memory alone: the heads
are computed a second time, from the last signed cut and the exact receipts since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cachemind.core.merkle import (
    EMPTY_ROOT,
    Frontier,
    MerkleTree,
    consistency_proof,
    leaf_hash,
    verify_consistency,
)
from cachemind.errors import AuditBroken
from cachemind.receipts import NO_LEAF, Cut, CutIndex, LogId, PartitionHead
from cachemind.types import Partition, Sha256

MISMATCH: Final = "mismatch"
MOST_KEPT: Final = 8192
"""Leaves whose content is kept until the head is found a second time."""

_SECOND_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How far receipts may be ahead of the last cut.

    The wait leaves time for the signature and the append within one second.
    """

    receipts: int = 1024
    wait_ns: int = _SECOND_NS * 3 // 4
    idle_ns: int = _SECOND_NS * 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What no cut covers yet.

    `since_ns` is when the oldest of it was seen, `last_cut_ns` when the last cut was
    made, None where this process made none. `urgent`: a key event is among it.
    `caught_up` is whether more is known to be on the log already.
    """

    receipts: int
    since_ns: int | None
    last_cut_ns: int | None
    caught_up: bool
    urgent: bool = False


def is_due(pace: Pace, waiting: Waiting, now_ns: int) -> bool:
    """Return whether to cut now.

    While there is a backlog, cuts come by the clock alone: a key that is far away
    signs once a second, and the backlog is not to wait for it.
    Units: nanoseconds on one clock that does not go back.
    """
    if waiting.last_cut_ns is None:
        return waiting.caught_up
    if waiting.since_ns is not None and now_ns - waiting.since_ns >= pace.wait_ns:
        return True
    if waiting.caught_up and (waiting.urgent or waiting.receipts >= pace.receipts):
        return True
    return now_ns - waiting.last_cut_ns >= pace.idle_ns


class GrowingHead:
    """The head of one tree, and the leaves since it was last found twice."""

    def __init__(self, last: PartitionHead) -> None:
        """Begin at a signed head. Raises: `AuditBroken`."""
        self._last = last
        self._frontier = Frontier(last.size, last.frontier)
        self._since: list[bytes] = []
        if self._frontier.root() != last.root:
            raise self._mismatch("the root does not follow from the frontier")

    @property
    def size(self) -> int:
        """Return how many leaves there are."""
        return self._frontier.size

    def append(self, content: bytes, leaf: Sha256) -> None:
        """Add the next leaf and its hash. Raises: `AuditBroken`."""
        self._frontier.append(leaf)
        self._since.append(content)
        if len(self._since) >= MOST_KEPT:
            # Cuts may have to wait for a key, for as long as it takes.
            self.rest_on(self.head())

    def head(self) -> PartitionHead:
        """Return the head that a cut is to name, once it was found twice.

        1. The leaves since the last one are hashed again from what they are of.
        2. A tree with every node grows over them from the last frontier.
        3. It must come to the same root and frontier as the one that grew leaf by
           leaf.
        4. The last root must be proven to begin it.

        Raises: `AuditBroken`.
        """
        last, frontier = self._last, self._frontier
        found = PartitionHead(
            partition=last.partition,
            size=frontier.size,
            root=frontier.root(),
            frontier=frontier.nodes,
        )
        tree = MerkleTree(last.size, last.frontier)
        tree.extend(leaf_hash(content) for content in self._since)
        if tree.size != found.size or tree.root() != found.root:
            raise self._mismatch("two computations of the root differ")
        if Frontier(found.size, found.frontier).root() != found.root:
            raise self._mismatch("the root does not follow from the new frontier")
        proof = consistency_proof(tree.node, last.size, found.size)
        if not verify_consistency(last.size, found.size, last.root, found.root, proof):
            raise self._mismatch("the last cut does not begin the next one")
        return found

    def rest_on(self, head: PartitionHead) -> None:
        """Go on from `head`, which `head()` has returned."""
        del self._since[: head.size - self._last.size]
        self._last = head

    def _mismatch(self, problem: str) -> AuditBroken:
        return AuditBroken(f"the head of {self._last.partition}", MISMATCH, problem)


class LogOfCuts:
    """The log of cuts and key events: grows by a leaf at a time."""

    def __init__(self) -> None:
        self._frontier = Frontier()
        self._previous = NO_LEAF
        self._signed = Frontier()
        self._since: list[bytes] = []

    @property
    def size(self) -> CutIndex:
        """Return how many leaves there are: the index of the next one."""
        return CutIndex(self._frontier.size)

    @property
    def previous(self) -> Sha256:
        """Return the hash of the last leaf."""
        return self._previous

    @property
    def nodes(self) -> tuple[Sha256, ...]:
        """Return the roots of the complete subtrees, largest first."""
        return self._frontier.nodes

    @classmethod
    def resumed(cls, size: int, nodes: Sequence[Sha256], previous: Sha256) -> LogOfCuts:
        """Return a log of `size` leaves that ends with a checkpoint.

        Raises: `ValueError` where `nodes` are no frontier of so many.
        """
        log = cls()
        log._frontier = Frontier(size, nodes)
        log._previous = previous
        log.signed()
        return log

    def root(self) -> Sha256:
        """Return the root over all leaves."""
        return self._frontier.root()

    def append(self, leaf: bytes) -> None:
        """Add the next leaf."""
        self._previous = leaf_hash(leaf)
        self._frontier.append(self._previous)
        self._since.append(leaf)

    def signed(self) -> None:
        """Note that a checkpoint over all leaves so far is on the log."""
        self._signed = self._frontier.copy()
        self._since.clear()

    def head_with(self, leaf: bytes) -> PartitionHead:
        """Return the head that a checkpoint is to name once `leaf` is the last one.

        Found twice, as any head. Raises: `AuditBroken`.
        """
        growing = GrowingHead(_head(self._signed))
        for one in (*self._since, leaf):
            growing.append(one, leaf_hash(one))
        frontier = self._frontier.copy()
        frontier.append(leaf_hash(leaf))
        found = growing.head()
        if found != _head(frontier):
            raise AuditBroken(
                f"cut {self.size}", MISMATCH, "two computations of the root differ"
            )
        return found


def _head(frontier: Frontier) -> PartitionHead:
    return PartitionHead(
        partition=Partition(0),
        size=frontier.size,
        root=frontier.root(),
        frontier=frontier.nodes,
    )


def first_heads(partitions: int) -> tuple[PartitionHead, ...]:
    """Return the heads of an audit log without receipts."""
    return tuple(
        PartitionHead(partition=Partition(number), size=0, root=EMPTY_ROOT, frontier=())
        for number in range(partitions)
    )


def next_cut(
    log_id: LogId, log: LogOfCuts, heads: tuple[PartitionHead, ...], at_ns: int
) -> Cut:
    """Return the cut that would be the next leaf of `log`."""
    return Cut(
        log_id=log_id,
        index=log.size,
        previous=log.previous,
        at_ns=at_ns,
        heads=heads,
    )
