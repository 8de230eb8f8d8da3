"""The topics of grants that a cluster has, and that may be read."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, cast

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, unlisted
    AclOperation,
    AdminClient,
    TopicDescription,
)

from cachemind.adapters.kafka_admin import KafkaAdmin, answer
from cachemind.adapters.kafka_config import Properties
from cachemind.adapters.kafka_errors import kafka_error
from cachemind.core.grant_topics import GrantTopics
from cachemind.errors import InvalidEvent

_LOG: Final = logging.getLogger("cachemind.grants")
DEADLINE_S: Final = 5.0
_READ: Final = frozenset({AclOperation.READ, AclOperation.ALL})


class KafkaGrants:
    """Finds topics of grants. Use it from one thread."""

    def __init__(self, properties: Properties, prefix: str) -> None:
        """Contact no broker yet. Raises: `InvalidSetting`."""
        self._admin = KafkaAdmin(properties, DEADLINE_S)
        self._names = GrantTopics(prefix)
        self._told: set[str] = set()

    def find(self) -> Mapping[str, str]:
        """Return the topics of commands by their names, each with its id.

        What is named as no grant can be, and what may not be read, is said once.
        Raises: `LogUnavailable`, `LogRejected`.
        """
        grants = self.listed()
        if not grants:
            return {}
        found = self._admin.ask(
            "describe topics of grants", lambda c, s: _described(c, grants, s)
        )
        return {
            name: str(topic.topic_id)
            for name, topic in found.items()
            if self._may_be_read(topic)
        }

    def listed(self) -> list[str]:
        """Return the topics of commands, sorted, whether they may be read or not.

        Raises: `LogUnavailable`, `LogRejected`.
        """
        found = self._admin.ask("list topics", _listed)
        return [name for name in sorted(found) if self._is_grant(name)]

    def delete(self, names: list[str]) -> None:
        """Delete topics, if they are there. Raises: `LogUnavailable`, `LogRejected`."""
        self._admin.ask("delete topics", lambda c, s: _delete(c, names, s))

    def close(self) -> None:
        """Leave the cluster."""
        self._admin.close()

    def _is_grant(self, topic: str) -> bool:
        try:
            return self._names.grant_of(topic) is not None
        except InvalidEvent as error:
            self._say(topic, f"is no topic of a grant: {error}")
            return False

    def _may_be_read(self, topic: TopicDescription) -> bool:
        # Typed as if it never had any.
        allowed = cast(list[AclOperation] | None, topic.authorized_operations)
        if allowed is None or not _READ.isdisjoint(allowed):
            return True
        # One that may not be read would end the consumer of all the others.
        self._say(topic.name, "may not be read by this process: it needs an ACL")
        return False

    def _say(self, topic: str, problem: str) -> None:
        if topic not in self._told:
            self._told.add(topic)
            _LOG.warning("%s is not answered, it %s", topic, problem)


def _listed(client: AdminClient, limit_s: float) -> list[str]:
    return list(client.list_topics(timeout=limit_s).topics)


def _delete(client: AdminClient, names: list[str], limit_s: float) -> None:
    asked = client.delete_topics(
        names, operation_timeout=limit_s, request_timeout=limit_s
    )
    for future in asked.values():
        try:
            answer(future, limit_s)
        except KafkaException as error:
            if kafka_error(error).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise


def _described(
    client: AdminClient, names: list[str], limit_s: float
) -> dict[str, TopicDescription]:
    asked = client.describe_topics(
        TopicCollection(names),
        include_authorized_operations=True,
        request_timeout=limit_s,
    )
    found = {}
    for name, future in asked.items():
        try:
            found[name] = answer(future, limit_s)
        except KafkaException as error:
            # Listed a moment ago, deleted since.
            if kafka_error(error).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
    return found
