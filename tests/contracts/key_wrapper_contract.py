"""What every `KeyWrapper` promises. Subclass it; fixtures `wrapper` and `other`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from cachemind.errors import KeyRefused
from cachemind.ports import KeyWrapper

SECRET = bytes(range(32))
CONTEXT = b"cachemind/payload-key/v1 default 00112233"


class KeyWrapperContract:
    """One test a promise of the port. `other` is another key of the same provider."""

    def test_a_secret_comes_back_under_its_context(self, wrapper: KeyWrapper) -> None:
        wrapped = wrapper.wrap(SECRET, CONTEXT)
        assert SECRET not in wrapped
        assert wrapper.unwrap(wrapped, CONTEXT) == SECRET

    @pytest.mark.parametrize("context", [b"", b"other", CONTEXT + b"\0", b"\xff\0"])
    def test_another_context_is_refused(
        self, wrapper: KeyWrapper, context: bytes
    ) -> None:
        wrapped = wrapper.wrap(SECRET, CONTEXT)
        with pytest.raises(KeyRefused):
            wrapper.unwrap(wrapped, context)

    def test_an_empty_context_is_one_too(self, wrapper: KeyWrapper) -> None:
        wrapped = wrapper.wrap(SECRET, b"")
        assert wrapper.unwrap(wrapped, b"") == SECRET
        with pytest.raises(KeyRefused):
            wrapper.unwrap(wrapped, b"\0")

    def test_a_changed_byte_is_refused(self, wrapper: KeyWrapper) -> None:
        wrapped = wrapper.wrap(SECRET, CONTEXT)
        for at in {0, 1, len(wrapped) // 2, len(wrapped) - 1}:
            changed = bytearray(wrapped)
            changed[at] ^= 1
            with pytest.raises(KeyRefused):
                wrapper.unwrap(bytes(changed), CONTEXT)

    @pytest.mark.parametrize("kept", [0, 1, 11, 12, 13, 28])
    def test_what_was_cut_is_refused(self, wrapper: KeyWrapper, kept: int) -> None:
        wrapped = wrapper.wrap(SECRET, CONTEXT)
        with pytest.raises(KeyRefused):
            wrapper.unwrap(wrapped[:kept], CONTEXT)

    def test_what_another_key_wrapped_is_refused(
        self, wrapper: KeyWrapper, other: KeyWrapper
    ) -> None:
        assert other.wrapper_id != wrapper.wrapper_id
        with pytest.raises(KeyRefused):
            wrapper.unwrap(other.wrap(SECRET, CONTEXT), CONTEXT)

    def test_threads_may_share_it(self, wrapper: KeyWrapper) -> None:
        secrets = [bytes([number]) * 32 for number in range(16)]
        with ThreadPoolExecutor(4) as pool:
            wrapped = list(pool.map(lambda it: wrapper.wrap(it, CONTEXT), secrets))
            again = list(pool.map(lambda it: wrapper.unwrap(it, CONTEXT), wrapped))
        assert again == secrets

    def test_it_can_be_closed_twice(self, wrapper: KeyWrapper) -> None:
        wrapper.close()
        wrapper.close()
