"""Schema ids from a Confluent-compatible schema registry, over its REST interface.

Source: Confluent Schema Registry API reference ("Subjects", "Schemas", "Errors").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from cachemind.errors import (
    InvalidSetting,
    LogRejected,
    LogUnavailable,
    UnknownSchema,
)

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

Answer = TypeVar("Answer")

SETTING: Final = "schema_registry_url"
DEFAULT_TIMEOUT_S: Final = 5.0
_UNAUTHORISED: Final = (401, 403)
_REFUSED: Final = (*_UNAUTHORISED, 409, 413, 422)
_SCHEMA_NOT_FOUND: Final = (404, 40403)


class RegistryIds:
    """`SchemaIds` of one topic's values: subject `<topic>-value` (TopicNameStrategy).

    Every answer is kept, as ids and schemas never change. Safe to use from many
    threads. A call waits `timeout_s` for each connection, write and read, and tries
    each URL once: retrying is the caller's choice.
    """

    def __init__(
        self,
        url: str,
        topic: str,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`url` may list several, with commas between.

        `settings` are the Confluent client's further properties, for example
        `basic.auth.user.info`, `ssl.ca.location`, `bearer.auth.token`.
        Raises: `InvalidSetting` without the `registry` extra, or where the client
        refuses the settings. The registry itself is not asked yet.
        """
        _check(url, timeout_s)
        self._subject = f"{topic}-value"
        self._client = _client(
            {**(settings or {}), "url": url, "timeout": timeout_s, "max.retries": 0}
        )

    def id_for(self, schema_text: str) -> int:
        """Return the schema's id under the subject, registering it where it is new.

        Raises: `LogUnavailable`; `LogRejected` where the registry finds it
        incompatible or invalid, or the caller not authorised.
        """
        from confluent_kafka.schema_registry import Schema

        schema = Schema(schema_text, "AVRO")
        found = _answer(lambda: self._client.register_schema(self._subject, schema))
        # Its annotation says int; an answer without the field gives None.
        if not isinstance(found, int):
            raise LogUnavailable("schema registry's answer has no id")
        return found

    def schema_for(self, schema_id: int) -> str:
        """Return the text of the schema with that id.

        Raises: `UnknownSchema` for an id the registry never gave, or one that is
        not for Avro; `LogUnavailable`; `LogRejected` where not authorised.
        """
        found = _answer(lambda: self._client.get_schema(schema_id), schema_id)
        if not isinstance(found.schema_str, str):
            raise LogUnavailable("schema registry's answer has no schema")
        if found.schema_type not in (None, "AVRO"):
            raise UnknownSchema(f"schema id {schema_id}, which is not for Avro")
        return found.schema_str

    def close(self) -> None:
        """Close idle connections."""
        self._client.close()


def _check(url: str, timeout_s: float) -> None:
    if timeout_s <= 0:
        raise InvalidSetting("schema_registry_timeout_ms", "must be positive")
    for one in url.split(","):
        # Never quoted: it may carry a password.
        parts = urlsplit(one.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidSetting(SETTING, "expected http://HOST:PORT or https://...")


def _client(settings: Mapping[str, Any]) -> SchemaRegistryClient:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise InvalidSetting(
            SETTING, "needs the extra: pip install 'cachemind[registry]'"
        ) from error
    try:
        return SchemaRegistryClient(dict(settings))
    except (ValueError, TypeError, OSError) as error:
        raise InvalidSetting(SETTING, f"settings refused: {error}") from error


def _answer(call: Callable[[], Answer], schema_id: int | None = None) -> Answer:
    """Return the call's result, or raise what its failure means to the log."""
    from confluent_kafka.schema_registry.error import (
        OAuthTokenError,
        SchemaRegistryError,
    )
    from httpx2 import HTTPError

    try:
        return call()
    except SchemaRegistryError as error:
        status, code = error.http_status_code, error.error_code
        found = f"schema registry answered {status} (code {code})"
        if schema_id is not None and (status, code) == _SCHEMA_NOT_FOUND:
            raise UnknownSchema(f"schema id {schema_id}") from error
        if status in _REFUSED:
            raise LogRejected(f"{found}: {_excerpt(error, status)}") from error
        raise LogUnavailable(found) from error
    except (HTTPError, OAuthTokenError, OSError) as error:
        # The exception's text may hold the URL with its password.
        raise LogUnavailable(
            f"schema registry did not answer ({type(error).__name__})"
        ) from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise LogUnavailable(
            f"schema registry's answer makes no sense ({type(error).__name__})"
        ) from error


def _excerpt(error: Exception, status: int) -> str:
    """Return the registry's words, cut: they may quote both schemas whole."""
    if status in _UNAUTHORISED:
        return "not authorised"
    words = str(getattr(error, "error_message", ""))
    return words[:400]
