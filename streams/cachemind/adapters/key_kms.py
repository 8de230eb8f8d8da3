"""Signing keys in AWS KMS."""

from __future__ import annotations

from typing import Final

from cachemind.adapters.key_verify import OpensslCheck, check_p256
from cachemind.adapters.kms_calls import KmsCalls
from cachemind.adapters.local_key import check_message
from cachemind.core.ecdsa_signature import raw_of_der
from cachemind.core.public_keys import key_id_of
from cachemind.errors import InvalidEvent, KeyRefused
from cachemind.receipts import KeyId, Signature

_ALGORITHM: Final = "ECDSA_SHA_256"
_PROBE: Final = b"cachemind/key-probe/v1"


class KmsKey:
    """Signs with a P-256 key of AWS KMS; any thread may ask, a call for each signature.

    Sends the message, not its hash (MessageType RAW): what is hashed where is then
    the same at AWS and at everything that stands in for it.
    """

    def __init__(self, calls: KmsCalls) -> None:
        """Fetch the public key and sign once, so that what is wrong is said now.

        Raises: `KeyRefused` where the key is not for ECDSA P-256 signatures, or its
        use is not allowed; `KeyUnavailable`.
        """
        self._calls = calls
        self._public_key = bytes(calls.ask("get_public_key")["PublicKey"])
        self._key_id = key_id_of(self._public_key)
        try:
            check_p256(self._public_key)
            signature = self.sign(_PROBE).value
            holds = OpensslCheck().ecdsa(self._public_key, _PROBE, signature)
        except InvalidEvent as error:
            raise KeyRefused(calls.arn, str(error)) from error
        if not holds:
            raise KeyRefused(calls.arn, "its signature does not fit its public key")

    @property
    def key_id(self) -> KeyId:
        """Return the id that follows from the public key."""
        return self._key_id

    @property
    def public_key(self) -> bytes:
        """Return the public key as DER (SPKI)."""
        return self._public_key

    def sign(self, message: bytes) -> Signature:
        """Return a signature by KMS, brought to raw r || s with a low s."""
        check_message(self._calls.arn, message)
        answer = self._calls.ask(
            "sign", Message=message, MessageType="RAW", SigningAlgorithm=_ALGORITHM
        )
        try:
            raw = raw_of_der(bytes(answer["Signature"]))
        except InvalidEvent as error:
            raise KeyRefused(self._calls.arn, f"gave no {error}") from error
        return Signature(key_id=self._key_id, value=raw)

    def close(self) -> None:
        """Leave KMS."""
        self._calls.close()
