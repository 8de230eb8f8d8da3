"""Merkle trees over what was appended: roots, and proofs that need no log.

A leaf's hash is SHA-256(00 || leaf), an inner node's SHA-256(01 || left || right); a
tree of n > 1 leaves parts after the largest power of two below n. A node is named by
its level (0: a leaf) and its index there, and exists once all its 2**level leaves do.
Source: RFC 9162 section 2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Final, TypeAlias

from cachemind.types import HASH_BYTES, Sha256

LEAF_PREFIX: Final = b"\x00"
NODE_PREFIX: Final = b"\x01"
EMPTY_ROOT: Final = Sha256(sha256(b"").digest())
"""The root of a tree without leaves."""

Nodes: TypeAlias = Callable[[int, int], Sha256]
"""Gives the hash of the node at (level, index)."""


def leaf_hash(leaf: bytes) -> Sha256:
    """Return the hash of a leaf's bytes."""
    return Sha256(sha256(LEAF_PREFIX + leaf).digest())


def node_hash(left: bytes, right: bytes) -> Sha256:
    """Return the hash of an inner node over the hashes of its two children."""
    return Sha256(sha256(NODE_PREFIX + left + right).digest())


class Frontier:
    """A growing tree, of which only the roots of its complete subtrees are kept.

    Those are all it takes to grow on and to tell the root: as many as `size` has one
    bits, the largest first.
    """

    __slots__ = ("_nodes", "size")

    def __init__(self, size: int = 0, nodes: Sequence[bytes] = ()) -> None:
        _check_frontier(size, nodes)
        self.size = size
        self._nodes: list[bytes] = list(nodes)

    @property
    def nodes(self) -> tuple[Sha256, ...]:
        """Return the roots of the complete subtrees, largest first."""
        return tuple(map(Sha256, self._nodes))

    def append(self, leaf: bytes) -> None:
        """Add the next leaf, given as its hash."""
        size, nodes = self.size, self._nodes
        self.size = size + 1
        while size & 1:
            leaf = sha256(NODE_PREFIX + nodes.pop() + leaf).digest()
            size >>= 1
        nodes.append(leaf)

    def extend(self, leaves: Iterable[bytes]) -> None:
        """Add the next leaves, given as their hashes."""
        for leaf in leaves:
            self.append(leaf)

    def root(self) -> Sha256:
        """Return the root of the leaves so far."""
        return _joined(self._nodes)

    def copy(self) -> Frontier:
        """Return one that grows apart from this one."""
        return Frontier(self.size, self.nodes)


class MerkleTree:
    """A growing tree of which every node is kept, for proofs in logarithmic time.

    May begin at the frontier of a tree whose leaves are elsewhere: it then proves
    only what is about later leaves.
    """

    __slots__ = ("_first", "_levels", "size")

    def __init__(self, size: int = 0, nodes: Sequence[bytes] = ()) -> None:
        _check_frontier(size, nodes)
        self.size = size
        left = list(nodes)
        self._levels: list[list[bytes]] = []
        self._first: list[int] = []
        for level in range(size.bit_length()):
            self._add_level(size >> level)
            if size >> level & 1:
                self._first[level] -= 1
                self._levels[level].append(left.pop())

    def append(self, leaf: bytes) -> None:
        """Add the next leaf, given as its hash."""
        index = self.size
        self.size = index + 1
        for level, held in enumerate(self._levels):
            held.append(leaf)
            if not index & 1:
                return
            leaf = sha256(NODE_PREFIX + held[-2] + leaf).digest()
            index >>= 1
            if level + 1 == len(self._levels):
                break
        self._add_level(0)
        self._levels[-1].append(leaf)

    def extend(self, leaves: Iterable[bytes]) -> None:
        """Add the next leaves, given as their hashes."""
        for leaf in leaves:
            self.append(leaf)

    def node(self, level: int, index: int) -> Sha256:
        """Return the hash of the node at (level, index).

        Raises: `LookupError` where it is before the beginning, or not complete yet.
        """
        if not 0 <= level < len(self._levels) or index < self._first[level]:
            raise LookupError(f"no node {index} at level {level}")
        try:
            return Sha256(self._levels[level][index - self._first[level]])
        except IndexError as error:
            raise LookupError(f"no node {index} at level {level}") from error

    def root(self, size: int | None = None) -> Sha256:
        """Return the root of the first `size` leaves, of all where none is given."""
        return tree_root(self.node, self.size if size is None else size)

    def _add_level(self, first: int) -> None:
        self._levels.append([])
        self._first.append(first)


def tree_root(nodes: Nodes, size: int) -> Sha256:
    """Return the root of the first `size` leaves."""
    return _range_root(nodes, 0, size)


def frontier_at(nodes: Nodes, size: int) -> tuple[Sha256, ...]:
    """Return the roots of the complete subtrees of the first `size` leaves."""
    return tuple(_complete(nodes, 0, size))


def inclusion_proof(nodes: Nodes, index: int, size: int) -> tuple[Sha256, ...]:
    """Return what proves that leaf `index` is one of the first `size`.

    Raises: `ValueError` where it is not.
    Source: RFC 9162 section 2.1.3.1.
    """
    if not 0 <= index < size:
        raise ValueError(f"leaf {index} is not in a tree of {size}")
    proof = []
    low, high = 0, size
    while high - low > 1:
        middle = low + _left_size(high - low)
        if index < middle:
            proof.append(_range_root(nodes, middle, high))
            high = middle
        else:
            proof.append(_range_root(nodes, low, middle))
            low = middle
    return tuple(reversed(proof))


def consistency_proof(nodes: Nodes, old: int, size: int) -> tuple[Sha256, ...]:
    """Return what proves that the first `old` leaves begin the first `size`.

    Empty for equal sizes and for `old` 0, where there is nothing to prove.

    Raises: `ValueError` where `old` is larger, or below 0.
    Source: RFC 9162 section 2.1.4.1.
    """
    if not 0 <= old <= size:
        raise ValueError(f"a tree of {old} does not begin one of {size}")
    if old == 0:
        return ()
    proof = []
    low, high = 0, size
    while old != high:
        middle = low + _left_size(high - low)
        if old <= middle:
            proof.append(_range_root(nodes, middle, high))
            high = middle
        else:
            proof.append(_range_root(nodes, low, middle))
            low = middle
    if low:
        proof.append(_range_root(nodes, low, high))
    return tuple(reversed(proof))


def verify_inclusion(
    leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes
) -> bool:
    """Say whether `proof` shows the leaf hash at `index` under `root`. Total.

    Source: RFC 9162 section 2.1.3.2.
    """
    if not 0 <= index < size or not _are_hashes(leaf, root, *proof):
        return False
    at, last, found = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            return False
        if at & 1 or at == last:
            found = node_hash(sibling, found)
            at, last = _up_to_right_child(at, last)
        else:
            found = node_hash(found, sibling)
        at, last = at >> 1, last >> 1
    return last == 0 and found == root


def verify_consistency(
    old: int, size: int, old_root: bytes, root: bytes, proof: Sequence[bytes]
) -> bool:
    """Say whether `proof` shows that the tree of `old` begins that of `size`. Total.

    Source: RFC 9162 section 2.1.4.2.
    """
    if not 0 <= old <= size or not _are_hashes(old_root, root, *proof):
        return False
    if old == size:
        return not proof and old_root == root
    if old == 0:
        return not proof and old_root == EMPTY_ROOT
    path = [old_root, *proof] if old.bit_count() == 1 else list(proof)
    return bool(proof) and _consistent(old, size, old_root, root, path)


def _consistent(
    old: int, size: int, old_root: bytes, root: bytes, path: Sequence[bytes]
) -> bool:
    at, last = old - 1, size - 1
    while at & 1:
        at, last = at >> 1, last >> 1
    before = after = path[0]
    for node in path[1:]:
        if last == 0:
            return False
        if at & 1 or at == last:
            before, after = node_hash(node, before), node_hash(node, after)
            at, last = _up_to_right_child(at, last)
        else:
            after = node_hash(after, node)
        at, last = at >> 1, last >> 1
    return last == 0 and before == old_root and after == root


def _up_to_right_child(at: int, last: int) -> tuple[int, int]:
    """Return the pair climbed past levels on which a node has no sibling."""
    while at and not at & 1:
        at, last = at >> 1, last >> 1
    return at, last


def _left_size(size: int) -> int:
    """Return the largest power of two below `size`, which is above 1."""
    return 1 << ((size - 1).bit_length() - 1)


def _range_root(nodes: Nodes, low: int, high: int) -> Sha256:
    """Return the root over [low, high), a subtree that the tree really has."""
    return _joined(_complete(nodes, low, high))


def _complete(nodes: Nodes, low: int, high: int) -> list[Sha256]:
    found = []
    while low < high:
        level = (high - low).bit_length() - 1
        found.append(nodes(level, low >> level))
        low += 1 << level
    return found


def _joined(complete: Sequence[bytes]) -> Sha256:
    if not complete:
        return EMPTY_ROOT
    *others, root = complete
    for node in reversed(others):
        root = node_hash(node, root)
    return Sha256(root)


def _check_frontier(size: int, nodes: Sequence[bytes]) -> None:
    if size < 0 or len(nodes) != size.bit_count() or not _are_hashes(*nodes):
        raise ValueError(f"{len(nodes)} hashes are no frontier of a tree of {size}")


def _are_hashes(*values: bytes) -> bool:
    return all(len(value) == HASH_BYTES for value in values)
