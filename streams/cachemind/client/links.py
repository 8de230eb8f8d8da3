"""The way to the cache that a URL names."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from cachemind.client.arguments import KAFKA_SCHEME, Kafka, base_of, brokers_of
from cachemind.client.asking import Asked
from cachemind.client.async_stream import AsyncStream
from cachemind.client.errors import NotValid
from cachemind.client.http_calls import Credentials
from cachemind.client.receipts import Pages
from cachemind.client.repeating import Patience
from cachemind.client.results import Control
from cachemind.client.sync_stream import Stream
from cachemind.core.access import Role
from cachemind.core.completion import JsonObject
from cachemind.core.grant_topics import Grant, GrantTopics
from cachemind.errors import InvalidEvent
from cachemind.types import check_namespace

if TYPE_CHECKING:
    from cachemind.client.kafka_link import KafkaLink, Place

T = TypeVar("T")
_READER: Final = "reader"
"""After the prefix of a grant's groups. Nobody joins it, but it has to have a name."""


class Link(Protocol):
    """One way to the cache, by calls that block. Each raises `CallFailed`."""

    def ask(self, asked: Asked[T], timeout_s: float) -> T:
        """Return the answer; all attempts together take `timeout_s`."""
        ...

    def stream(self, request: JsonObject, control: Control, timeout_s: float) -> Stream:
        """Return a completion in parts."""
        ...

    def receipts(self, pages: Pages, timeout_s: float) -> None:
        """Take in all pages."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


class AsyncLink(Protocol):
    """`Link`, to await."""

    def ask(self, asked: Asked[T], timeout_s: float) -> Awaitable[T]:
        """Return the answer; all attempts together take `timeout_s`."""
        ...

    def stream(
        self, request: JsonObject, control: Control, timeout_s: float
    ) -> Awaitable[AsyncStream]:
        """Return a completion in parts."""
        ...

    def receipts(self, pages: Pages, timeout_s: float) -> Awaitable[None]:
        """Take in all pages."""
        ...

    def close(self) -> Awaitable[None]:
        """Close all connections."""
        ...


def sync_link(url: str, who: Credentials, kafka: Kafka, patience: Patience) -> Link:
    """Return the way to `url`; nobody is asked yet. Raises: `NotValid`."""
    if url.startswith(KAFKA_SCHEME):
        # Imported here: who asks over HTTP needs no librdkafka.
        from cachemind.client.sync_kafka import SyncKafka

        return SyncKafka(_kafka_link(url, who, kafka), patience)
    from cachemind.client.sync_http import SyncHttp

    return SyncHttp(base_of(url), who.fields(), patience)


def async_link(
    url: str, who: Credentials, kafka: Kafka, patience: Patience
) -> AsyncLink:
    """Return the way to `url`; nobody is asked yet. Raises: `NotValid`."""
    if url.startswith(KAFKA_SCHEME):
        from cachemind.client.async_kafka import AsyncKafka

        return AsyncKafka(_kafka_link(url, who, kafka), patience)
    from cachemind.client.async_http import AsyncHttp

    return AsyncHttp(base_of(url), who.fields(), patience)


def _kafka_link(url: str, who: Credentials, kafka: Kafka) -> KafkaLink:
    from cachemind.client.kafka_link import KafkaLink, Place

    if who.key is not None or who.upstream is not None:
        problem = "over Kafka the brokers say who asks: give kafka=Kafka(properties=..)"
        raise NotValid(problem, field="key" if who.key is not None else "upstream_key")
    if who.namespace is None:
        raise NotValid("namespace: over Kafka a command names one", field="namespace")
    try:
        namespace = check_namespace(who.namespace)
    except InvalidEvent as error:
        raise NotValid(str(error), field="namespace") from error
    brokers, role = brokers_of(url)
    place = Place(
        kafka={**kafka.properties, "bootstrap.servers": brokers},
        namespace=namespace,
        requests=kafka.requests or f"{kafka.topic_prefix}.requests",
        replies=kafka.replies or f"{kafka.topic_prefix}.replies",
    )
    if kafka.role or role:
        place = _granted(place, kafka, {kafka.role, role} - {""})
    return KafkaLink(place)


def _granted(place: Place, kafka: Kafka, roles: set[str]) -> Place:
    """Return the topics of a grant, and its group. Raises: `NotValid`."""
    if len(roles) > 1 or kafka.requests or kafka.replies:
        problem = "name one role, or the topics and no role"
        raise NotValid(f"kafka: {problem}", field="kafka")
    (role,) = roles
    if role not in list(Role):
        raise NotValid(f"role: must be one of {', '.join(Role)}", field="role")
    names = GrantTopics(kafka.topic_prefix)
    try:
        grant = Grant(namespace=place.namespace, role=Role(role))
        return replace(
            place,
            requests=names.requests(grant),
            replies=names.replies(grant),
            group=names.group_prefix(grant) + _READER,
        )
    except InvalidEvent as error:
        raise NotValid(str(error), field="namespace") from error
