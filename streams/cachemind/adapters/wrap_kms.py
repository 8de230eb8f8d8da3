"""A wrapping key in AWS KMS: a symmetric one, by Encrypt and Decrypt."""

from __future__ import annotations

import base64
from typing import Final

from cachemind.adapters.kms_calls import KmsCalls
from cachemind.core.kms_uri import SCHEME
from cachemind.errors import KeyRefused

MAX_SECRET_BYTES: Final = 4_096
"""Source: AWS KMS, Encrypt, a symmetric key."""

_CONTEXT: Final = "cachemind-context"


class KmsWrapper:
    """Wraps under a key of AWS KMS; any thread may ask, one call each time.

    The context is KMS's encryption context, in base64: it is in CloudTrail, so that
    each use of a payload key is on record with AWS.
    """

    def __init__(self, calls: KmsCalls) -> None:
        self._calls = calls

    @property
    def wrapper_id(self) -> str:
        """Return the URI of the key."""
        return f"{SCHEME}{self._calls.arn}"

    def wrap(self, secret: bytes, context: bytes) -> bytes:
        """Return what KMS makes of `secret`."""
        if not 0 < len(secret) <= MAX_SECRET_BYTES:
            raise KeyRefused(
                self._calls.arn,
                f"wraps 1 to {MAX_SECRET_BYTES} bytes, found {len(secret)}",
            )
        answer = self._calls.ask(
            "encrypt", Plaintext=secret, EncryptionContext=_told(context)
        )
        return bytes(answer["CiphertextBlob"])

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """Return the secret. Raises: `KeyRefused` where KMS does not know it again."""
        if not wrapped:
            raise KeyRefused(self._calls.arn, "unwraps something, found nothing")
        answer = self._calls.ask(
            "decrypt", CiphertextBlob=wrapped, EncryptionContext=_told(context)
        )
        return bytes(answer["Plaintext"])

    def close(self) -> None:
        """Leave KMS."""
        self._calls.close()


def _told(context: bytes) -> dict[str, str]:
    # Never empty, which KMS does not take as a value.
    return {_CONTEXT: "v1." + base64.urlsafe_b64encode(context).decode("ascii")}
