from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.merkle import (
    EMPTY_ROOT,
    Frontier,
    MerkleTree,
    consistency_proof,
    frontier_at,
    inclusion_proof,
    leaf_hash,
    node_hash,
    tree_root,
    verify_consistency,
    verify_inclusion,
)
from cachemind.types import Sha256

# The tree that certificate transparency's implementations share as known answer.
LEAVES = tuple(
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
)
ROOTS = tuple(
    bytes.fromhex(text)
    for text in (
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    )
)
LEFT_FOUR = "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7"
RIGHT_FOUR = "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4"
FIRST_LEAF = "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
SECOND_LEAF = "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7"
THIRD_AND_FOURTH = "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e"
FIFTH_LEAF = "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b"
SEVENTH_LEAF = "b08693ec2e721597130641e8211e7eedccb4c26413963eee6c1e2ed16ffb1a5f"
FIFTH_AND_SIXTH = "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a"
LAST_TWO = "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0"
OTHER = bytes.fromhex("abacaba0" + 24 * "00" + "60061e00")

INCLUSION = [
    pytest.param(0, 1, [], id="the-only-leaf"),
    pytest.param(0, 8, [SECOND_LEAF, THIRD_AND_FOURTH, RIGHT_FOUR], id="first-of-8"),
    pytest.param(5, 8, [FIFTH_LEAF, LAST_TWO, LEFT_FOUR], id="sixth-of-8"),
    pytest.param(2, 3, [ROOTS[1].hex()], id="last-of-3"),
    pytest.param(1, 5, [FIRST_LEAF, THIRD_AND_FOURTH, FIFTH_LEAF], id="second-of-5"),
]
CONSISTENCY = [
    pytest.param(1, 1, [], id="1-to-1"),
    pytest.param(1, 8, [SECOND_LEAF, THIRD_AND_FOURTH, RIGHT_FOUR], id="1-to-8"),
    pytest.param(6, 8, [FIFTH_AND_SIXTH, LAST_TWO, LEFT_FOUR], id="6-to-8"),
    pytest.param(2, 5, [THIRD_AND_FOURTH, FIFTH_LEAF], id="2-to-5"),
    pytest.param(6, 7, [FIFTH_AND_SIXTH, SEVENTH_LEAF, LEFT_FOUR], id="6-to-7"),
]


def tree_of(leaves: Sequence[bytes]) -> MerkleTree:
    tree = MerkleTree()
    tree.extend(leaf_hash(leaf) for leaf in leaves)
    return tree


def by_the_book(leaves: Sequence[bytes]) -> bytes:
    """RFC 9162 section 2.1.1, written out without the package."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return sha256(b"\x00" + leaves[0]).digest()
    half = 1
    while half * 2 < len(leaves):
        half *= 2
    left, right = by_the_book(leaves[:half]), by_the_book(leaves[half:])
    return sha256(b"\x01" + left + right).digest()


def numbered(count: int) -> list[Sha256]:
    return [leaf_hash(number.to_bytes(4, "big")) for number in range(count)]


def test_the_roots_of_the_known_tree_hold() -> None:
    frontier = Frontier()
    assert frontier.root() == sha256(b"").digest()
    for leaf, root in zip(LEAVES, ROOTS, strict=True):
        frontier.append(leaf_hash(leaf))
        assert frontier.root() == root
    assert [tree_of(LEAVES).root(size) for size in range(1, 9)] == list(ROOTS)


@pytest.mark.parametrize(("index", "size", "proof"), INCLUSION)
def test_the_known_inclusion_proofs_hold(
    index: int, size: int, proof: list[str]
) -> None:
    path = [bytes.fromhex(one) for one in proof]
    leaf, root = leaf_hash(LEAVES[index]), ROOTS[size - 1]

    assert list(inclusion_proof(tree_of(LEAVES).node, index, size)) == path
    assert verify_inclusion(leaf, index, size, path, root)


@pytest.mark.parametrize(("old", "size", "proof"), CONSISTENCY)
def test_the_known_consistency_proofs_hold(
    old: int, size: int, proof: list[str]
) -> None:
    path = [bytes.fromhex(one) for one in proof]

    assert list(consistency_proof(tree_of(LEAVES).node, old, size)) == path
    assert verify_consistency(old, size, ROOTS[old - 1], ROOTS[size - 1], path)


@pytest.mark.parametrize(("index", "size", "proof"), INCLUSION)
def test_no_corrupted_inclusion_proof_holds(
    index: int, size: int, proof: list[str]
) -> None:
    path = [bytes.fromhex(one) for one in proof]
    leaf, root = leaf_hash(LEAVES[index]), ROOTS[size - 1]
    probes: dict[str, tuple[bytes, int, int, list[bytes], bytes]] = {
        "index - 1": (leaf, index - 1, size, path, root),
        "index + 1": (leaf, index + 1, size, path, root),
        "index ^ 2": (leaf, index ^ 2, size, path, root),
        "size * 2": (leaf, index, size * 2, path, root),
        "size // 2": (leaf, index, size // 2, path, root),
        "size 0": (leaf, index, 0, path, root),
        "wrong leaf": (b"WrongLeaf", index, size, path, root),
        "no leaf": (b"", index, size, path, root),
        "other leaf": (OTHER, index, size, path, root),
        "empty root": (leaf, index, size, path, EMPTY_ROOT),
        "other root": (leaf, index, size, path, OTHER),
        "no root": (leaf, index, size, path, b""),
        "trailing nothing": (leaf, index, size, [*path, b""], root),
        "trailing root": (leaf, index, size, [*path, root], root),
        "leading nothing": (leaf, index, size, [b"", *path], root),
        "leading root": (leaf, index, size, [root, *path], root),
    }
    for at in range(len(path)):
        probes[f"without {at}"] = (leaf, index, size, path[:at] + path[at + 1 :], root)
        probes[f"{at} cut"] = (leaf, index, size, _with(path, at, path[at][:31]), root)
        probes[f"{at} twice"] = (
            leaf,
            index,
            size,
            [*path[:at], path[at], *path[at:]],
            root,
        )
    if len(path) > 1:
        inserted = [path[0], OTHER, *path[1:]]
        probes["inserted"] = (leaf, index, size, inserted, root)
        probes["swapped"] = (leaf, index, size, [path[1], path[0], *path[2:]], root)

    held = [name for name, probe in probes.items() if verify_inclusion(*probe)]
    assert not held


@pytest.mark.parametrize(("old", "size", "proof"), CONSISTENCY[1:])
def test_no_corrupted_consistency_proof_holds(
    old: int, size: int, proof: list[str]
) -> None:
    path = [bytes.fromhex(one) for one in proof]
    before, after = ROOTS[old - 1], ROOTS[size - 1]
    probes: dict[str, tuple[int, int, bytes, bytes, list[bytes]]] = {
        "old - 1": (old - 1, size, before, after, path),
        "old + 1": (old + 1, size, before, after, path),
        "old ^ 2": (old ^ 2, size, before, after, path),
        "size * 2": (old, size * 2, before, after, path),
        "size // 2": (old, size // 2, before, after, path),
        "wrong old root": (old, size, b"WrongRoot", after, path),
        "wrong root": (old, size, before, b"WrongRoot", path),
        "other old root": (old, size, OTHER, after, path),
        "other root": (old, size, before, OTHER, path),
        "swapped roots": (old, size, after, before, path),
        "no proof": (old, size, before, after, []),
        "trailing nothing": (old, size, before, after, [*path, b""]),
        "trailing old root": (old, size, before, after, [*path, before]),
        "trailing root": (old, size, before, after, [*path, after]),
        "leading nothing": (old, size, before, after, [b"", *path]),
        "leading old root": (old, size, before, after, [before, *path]),
        "leading root": (old, size, before, after, [after, *path]),
        "first twice": (old, size, before, after, [path[0], *path]),
        "truncated": (old, size, before, after, path[:-1]),
        "beheaded": (old, size, before, after, path[1:]),
        "backwards": (size, old, after, before, path),
    }

    held = [name for name, probe in probes.items() if verify_consistency(*probe)]
    assert not held


def test_bytes_moved_between_two_hashes_prove_nothing() -> None:
    left, right = numbered(2)
    root = node_hash(left, right)
    assert verify_inclusion(left, 0, 2, [right], root)
    assert not verify_inclusion(left[:31], 0, 2, [left[31:] + right], root)
    assert not verify_inclusion(left + right[:1], 0, 2, [right[1:]], root)
    assert verify_consistency(1, 2, left, root, [right])
    assert not verify_consistency(1, 2, left[:31], root, [left[31:] + right])


@pytest.mark.parametrize(
    ("old", "size", "old_root", "root", "proof", "holds"),
    [
        pytest.param(0, 0, EMPTY_ROOT, EMPTY_ROOT, [], True, id="nothing-twice"),
        pytest.param(0, 1, EMPTY_ROOT, OTHER, [], True, id="nothing-begins-all"),
        pytest.param(1, 1, OTHER, OTHER, [], True, id="same"),
        pytest.param(0, 1, OTHER, OTHER, [], False, id="nothing-has-one-root"),
        pytest.param(0, 0, EMPTY_ROOT, OTHER, [], False, id="two-roots-of-nothing"),
        pytest.param(1, 1, EMPTY_ROOT, OTHER, [], False, id="two-roots-of-one"),
        pytest.param(1, 0, OTHER, EMPTY_ROOT, [], False, id="into-the-past"),
        pytest.param(2, 1, OTHER, OTHER, [], False, id="shrunk"),
        pytest.param(-1, 1, OTHER, OTHER, [], False, id="below-zero"),
        pytest.param(1, 2, OTHER, OTHER, [], False, id="no-proof"),
        pytest.param(0, 0, EMPTY_ROOT, EMPTY_ROOT, [OTHER], False, id="proof-of-0"),
        pytest.param(0, 1, EMPTY_ROOT, OTHER, [OTHER], False, id="proof-from-0"),
        pytest.param(1, 1, OTHER, OTHER, [OTHER], False, id="proof-of-same"),
    ],
)
def test_trivial_consistency(
    old: int, size: int, old_root: bytes, root: bytes, proof: list[bytes], holds: bool
) -> None:
    assert verify_consistency(old, size, old_root, root, proof) is holds


def _with(path: list[bytes], at: int, value: bytes) -> list[bytes]:
    return [*path[:at], value, *path[at + 1 :]]


@given(st.lists(st.binary(max_size=40), max_size=70))
def test_both_trees_give_the_root_of_the_definition(leaves: list[bytes]) -> None:
    frontier = Frontier()
    frontier.extend(leaf_hash(leaf) for leaf in leaves)

    assert frontier.root() == by_the_book(leaves)
    assert tree_of(leaves).root() == by_the_book(leaves)
    assert frontier_at(tree_of(leaves).node, len(leaves)) == frontier.nodes


def test_every_leaf_of_every_small_tree_is_proven_there_and_nowhere_else() -> None:
    leaves = numbered(33)
    tree = MerkleTree()
    tree.extend(leaves)
    for size in range(1, 34):
        root = tree.root(size)
        for index in range(size):
            proof = inclusion_proof(tree.node, index, size)
            places = [
                (at, of)
                for of in range(1, 34)
                for at in range(of)
                if verify_inclusion(leaves[index], at, of, proof, root)
            ]
            assert (index, size) in places
            assert {at for at, of in places if of == size} == {index}


def test_every_small_tree_is_consistent_with_its_beginnings() -> None:
    tree = MerkleTree()
    tree.extend(numbered(33))
    for size in range(34):
        for old in range(size + 1):
            proof = consistency_proof(tree.node, old, size)
            assert verify_consistency(old, size, tree.root(old), tree.root(size), proof)


@given(st.data())
def test_one_flipped_bit_breaks_a_proof(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 200))
    index = data.draw(st.integers(0, size - 1))
    leaves = numbered(size)
    tree = MerkleTree()
    tree.extend(leaves)
    proof = inclusion_proof(tree.node, index, size)
    at = data.draw(st.integers(0, len(proof) - 1))
    flipped = _flip(proof[at], data.draw(st.integers(0, 255)))

    wrong = _with(list(proof), at, flipped)
    assert not verify_inclusion(leaves[index], index, size, wrong, tree.root())

    old = data.draw(st.integers(1, size - 1))
    path = consistency_proof(tree.node, old, size)
    at = data.draw(st.integers(0, len(path) - 1))
    flipped = _flip(path[at], data.draw(st.integers(0, 255)))
    wrong = _with(list(path), at, flipped)
    assert not verify_consistency(old, size, tree.root(old), tree.root(), wrong)


def _flip(value: bytes, bit: int) -> bytes:
    return (int.from_bytes(value, "big") ^ 1 << bit).to_bytes(len(value), "big")


@given(st.integers(0, 100), st.integers(0, 100), st.data())
def test_a_tree_begun_at_a_frontier_proves_what_comes_later(
    before: int, after: int, data: st.DataObject
) -> None:
    leaves = numbered(before + after)
    whole = MerkleTree()
    whole.extend(leaves)
    frontier = Frontier()
    frontier.extend(leaves[:before])
    late = MerkleTree(frontier.size, frontier.nodes)
    late.extend(leaves[before:])

    assert late.root() == whole.root()
    if not after:
        return
    size = data.draw(st.integers(before + 1, before + after))
    index = data.draw(st.integers(before, size - 1))
    old = data.draw(st.integers(before, size))
    assert inclusion_proof(late.node, index, size) == inclusion_proof(
        whole.node, index, size
    )
    assert consistency_proof(late.node, old, size) == consistency_proof(
        whole.node, old, size
    )


@given(st.integers(0, 300), st.integers(0, 40))
def test_a_frontier_grows_on_from_what_was_kept_of_it(size: int, more: int) -> None:
    leaves = numbered(size + more)
    kept = Frontier()
    kept.extend(leaves[:size])
    grown = Frontier(kept.size, kept.nodes)
    grown.extend(leaves[size:])
    at_once = Frontier()
    at_once.extend(leaves)

    assert (grown.root(), grown.nodes) == (at_once.root(), at_once.nodes)
    copied = kept.copy()
    copied.extend(leaves[size:])
    assert copied.root() == at_once.root()
    assert kept.size == size


@pytest.mark.parametrize("kind", [Frontier, MerkleTree])
@pytest.mark.parametrize(
    ("size", "nodes"),
    [
        pytest.param(-1, [], id="below-zero"),
        pytest.param(1, [], id="too-few"),
        pytest.param(4, [OTHER, OTHER], id="too-many"),
        pytest.param(1, [OTHER[:31]], id="no-hash"),
    ],
)
def test_what_is_no_frontier_is_refused(
    kind: Callable[[int, list[bytes]], object], size: int, nodes: list[bytes]
) -> None:
    with pytest.raises(ValueError, match="no frontier"):
        kind(size, nodes)


def test_what_a_tree_does_not_hold_is_an_error() -> None:
    frontier = Frontier()
    frontier.extend(numbered(6))
    tree = MerkleTree(frontier.size, frontier.nodes)
    for level, index in [(0, 0), (0, 6), (1, 1), (1, 3), (3, 0), (-1, 0), (0, -1)]:
        with pytest.raises(LookupError):
            tree.node(level, index)
    assert tree.node(1, 2) == frontier.nodes[1]


@pytest.mark.parametrize(("index", "size"), [(0, 0), (1, 1), (-1, 1)])
def test_a_leaf_outside_of_the_tree_has_no_proof(index: int, size: int) -> None:
    with pytest.raises(ValueError, match="not in a tree"):
        inclusion_proof(tree_of(LEAVES).node, index, size)


@pytest.mark.parametrize(("old", "size"), [(2, 1), (-1, 1)])
def test_a_larger_tree_does_not_begin_a_smaller(old: int, size: int) -> None:
    with pytest.raises(ValueError, match="does not begin"):
        consistency_proof(tree_of(LEAVES).node, old, size)


def test_a_leaf_cannot_stand_for_a_node() -> None:
    left, right = numbered(2)
    assert leaf_hash(left + right) != node_hash(left, right)
    assert tree_root(MerkleTree().node, 0) == EMPTY_ROOT
