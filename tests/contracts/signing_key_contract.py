"""What every `SigningKey` promises. Subclass it and give a fixture `key`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from cachemind.adapters.key_verify import OpensslCheck
from cachemind.core.ecdsa_signature import is_raw_low_s
from cachemind.core.public_keys import key_id_of
from cachemind.errors import KeyRefused
from cachemind.ports import SigningKey

CHECK = OpensslCheck()


class SigningKeyContract:
    """One test a promise of the port."""

    MANY = 64
    """Signatures in a row; half of them would have a high s."""

    def test_its_id_follows_from_its_public_key(self, key: SigningKey) -> None:
        assert key.key_id == key_id_of(key.public_key)
        # A P-256 key in DER (SPKI) is always 91 bytes.
        assert len(key.public_key) == 91

    def test_its_signature_holds_for_its_message_alone(self, key: SigningKey) -> None:
        signature = key.sign(b"message")
        assert signature.key_id == key.key_id
        assert CHECK.ecdsa(key.public_key, b"message", signature.value)
        assert not CHECK.ecdsa(key.public_key, b"messagf", signature.value)

    def test_every_signature_is_raw_with_a_low_s(self, key: SigningKey) -> None:
        for number in range(self.MANY):
            message = b"message %d" % number
            signature = key.sign(message).value
            assert is_raw_low_s(signature)
            assert CHECK.ecdsa(key.public_key, message, signature)

    @pytest.mark.parametrize("size", [1, 4_096])
    def test_it_signs_up_to_4096_bytes(self, key: SigningKey, size: int) -> None:
        message = b"x" * size
        assert CHECK.ecdsa(key.public_key, message, key.sign(message).value)

    def test_it_refuses_more_than_every_provider_takes(self, key: SigningKey) -> None:
        with pytest.raises(KeyRefused, match="at most 4096 bytes, found 4097"):
            key.sign(bytes(4_097))

    def test_threads_may_share_it(self, key: SigningKey) -> None:
        messages = [b"message %d" % number for number in range(self.MANY)]
        with ThreadPoolExecutor(8) as pool:
            signatures = list(pool.map(key.sign, messages))
        for message, signature in zip(messages, signatures, strict=True):
            assert CHECK.ecdsa(key.public_key, message, signature.value)

    def test_a_closed_key_refuses_and_is_closed_twice(self, key: SigningKey) -> None:
        key.close()
        key.close()
        with pytest.raises(KeyRefused, match="is closed"):
            key.sign(b"message")
