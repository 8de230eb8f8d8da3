from __future__ import annotations

import pytest

from cachemind.adapters.memory_keys import MemoryKey, MemoryWrapper
from cachemind.errors import KeyUnavailable
from cachemind.ports import KeyWrapper, SigningKey
from tests.contracts.key_wrapper_contract import KeyWrapperContract
from tests.contracts.signing_key_contract import SigningKeyContract


class TestMemoryKey(SigningKeyContract):
    @pytest.fixture
    def key(self) -> SigningKey:
        return MemoryKey()


class TestMemoryWrapper(KeyWrapperContract):
    @pytest.fixture
    def wrapper(self) -> KeyWrapper:
        return MemoryWrapper("one")

    @pytest.fixture
    def other(self) -> KeyWrapper:
        return MemoryWrapper("two")


def test_a_name_is_a_key_and_its_signatures_repeat() -> None:
    assert MemoryKey("a").sign(b"m") == MemoryKey("a").sign(b"m")
    assert MemoryKey("a").key_id != MemoryKey("b").key_id


def test_it_fails_as_long_as_it_is_told_to() -> None:
    key, wrapper = MemoryKey(), MemoryWrapper()
    key.failure = wrapper.failure = KeyUnavailable("test", "is away")
    with pytest.raises(KeyUnavailable):
        key.sign(b"m")
    with pytest.raises(KeyUnavailable):
        wrapper.wrap(b"s", b"")
    key.failure = wrapper.failure = None
    assert wrapper.unwrap(wrapper.wrap(b"s", b""), b"") == b"s"
