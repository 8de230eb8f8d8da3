from __future__ import annotations

import json
from hashlib import sha256
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.op_hash import op_hash
from cachemind.core.tagged_hash import pae, tagged_hash

VECTORS = Path(__file__).parent.parent / "vectors" / "op_hash.json"


def _le64(number: int) -> bytes:
    return number.to_bytes(8, "little")


def _by_the_book(verb: str, key: bytes, payload: bytes, timestamp_ns: int) -> bytes:
    """The published definition, written out without the package."""
    pieces = [
        b"cachemind/op/v1",
        verb.encode(),
        key,
        payload,
        timestamp_ns.to_bytes(8, "big"),
    ]
    text = _le64(len(pieces)) + b"".join(_le64(len(p)) + p for p in pieces)
    return sha256(text).digest()


@pytest.mark.parametrize("vector", json.loads(VECTORS.read_text()))
def test_the_published_vectors_hold(vector: dict[str, str | int]) -> None:
    verb, key, payload = (str(vector[name]) for name in ("verb", "key", "payload"))
    timestamp_ns = int(vector["timestamp_ns"])
    operation = (verb, bytes.fromhex(key), bytes.fromhex(payload), timestamp_ns)

    assert op_hash(*operation).hex() == vector["op_hash"]
    assert _by_the_book(*operation).hex() == vector["op_hash"]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        pytest.param([], bytes(8), id="nothing"),
        pytest.param([b""], b"\1" + bytes(15), id="one-empty-piece"),
        pytest.param(
            [b"test"], b"\1" + bytes(7) + b"\4" + bytes(7) + b"test", id="one"
        ),
    ],
)
def test_pae_matches_the_vectors_of_its_specification(
    pieces: list[bytes], expected: bytes
) -> None:
    assert pae(*pieces) == expected


def test_operations_that_concatenate_to_the_same_bytes_have_different_hashes() -> None:
    operations = [
        ("ab", b"c", b"d", 0),
        ("a", b"bc", b"d", 0),
        ("a", b"b", b"cd", 0),
        ("abcd", b"", b"", 0),
        ("", b"", b"abcd", 0),
        ("", b"abcd", b"", 0),
    ]

    assert len({op_hash(*operation) for operation in operations}) == len(operations)


@given(
    one=st.lists(st.binary(max_size=4), max_size=4),
    other=st.lists(st.binary(max_size=4), max_size=4),
)
def test_pae_is_injective(one: list[bytes], other: list[bytes]) -> None:
    assert (pae(*one) == pae(*other)) == (one == other)


def test_each_domain_is_a_hash_function_of_its_own() -> None:
    hashes = [tagged_hash(domain, b"x") for domain in (b"a", b"b", b"")]

    assert all(one != other for one, other in combinations(hashes, 2))


@pytest.mark.parametrize("timestamp_ns", [-1, 2**64])
def test_a_time_that_does_not_fit_is_refused(timestamp_ns: int) -> None:
    with pytest.raises(ValueError, match="timestamp_ns"):
        op_hash("stored", b"", b"", timestamp_ns)
