"""Calls of AWS KMS, by its real API, with deadlines and errors of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

# botocore brings no types.
import botocore.session  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import (  # type: ignore[import-untyped]
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
)

from cachemind.core.kms_uri import KmsUri
from cachemind.errors import KeyRefused, KeyUnavailable

CONNECT_S: Final = 2.0
ANSWER_S: Final = 3.0
ATTEMPTS: Final = 3
_CONNECTIONS: Final = 16
_EXCERPT_CHARS: Final = 200
_SERVER_ERROR: Final = 500

_RETRY: Final = frozenset(
    {
        "DependencyTimeoutException",
        "KMSInternalException",
        "KeyUnavailableException",
        "LimitExceededException",
        "RequestLimitExceeded",
        "RequestTimeout",
        "RequestTimeoutException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
"""Error codes after which a retry may succeed. Source: AWS KMS API reference."""

_NO_REQUEST: Final = (
    NoCredentialsError,
    PartialCredentialsError,
    ParamValidationError,
)


class KmsCalls:
    """A client for one key. Safe to use from many threads.

    Credentials come from where AWS's own tools look for them. A call that fails for
    a reason that may pass is tried three times in all, with pauses.
    """

    def __init__(
        self,
        uri: KmsUri,
        *,
        connect_s: float = CONNECT_S,
        answer_s: float = ANSWER_S,
        attempts: int = ATTEMPTS,
    ) -> None:
        self._arn = uri.arn
        config = Config(
            connect_timeout=connect_s,
            read_timeout=answer_s,
            retries={"mode": "standard", "total_max_attempts": attempts},
            max_pool_connections=_CONNECTIONS,
        )
        self._closed = False
        try:
            self._client = botocore.session.get_session().create_client(
                "kms",
                region_name=uri.region,
                endpoint_url=uri.endpoint or None,
                config=config,
            )
        except BotoCoreError as error:
            raise KeyRefused(self._arn, str(error)) from error

    @property
    def arn(self) -> str:
        """Return the key's name."""
        return self._arn

    def ask(self, operation: str, **parameters: object) -> Mapping[str, Any]:
        """Return the answer about the key. Raises: `KeyRefused`, `KeyUnavailable`."""
        if self._closed:
            raise KeyRefused(self._arn, "is closed")
        try:
            answer: Mapping[str, Any] = getattr(self._client, operation)(
                KeyId=self._arn, **parameters
            )
        except ClientError as error:
            raise self._failure(error.response) from error
        except _NO_REQUEST as error:
            raise KeyRefused(self._arn, f"{operation}: {error}") from error
        except BotoCoreError as error:
            raise KeyUnavailable(
                self._arn, f"{operation}: {type(error).__name__}"
            ) from error
        return answer

    def close(self) -> None:
        """End all connections."""
        self._closed = True
        self._client.close()

    def _failure(self, answer: Mapping[str, Any]) -> KeyRefused | KeyUnavailable:
        error = answer.get("Error", {})
        code = str(error.get("Code", "no code"))
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        words = f"{code}: {str(error.get('Message', ''))[:_EXCERPT_CHARS]}"
        if code in _RETRY or status >= _SERVER_ERROR:
            return KeyUnavailable(self._arn, words)
        return KeyRefused(self._arn, words)
