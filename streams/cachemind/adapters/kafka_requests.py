"""One partition of the topic of requests, owned by one process at a time.

Ownership is the transactional id of the partition: whoever begins with it last shuts
the others out, before they can commit anything more. So it does not matter for how
long a process believes that its group has given it the partition.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from cachemind.adapters.kafka_admin import KafkaAdmin, answer
from cachemind.adapters.kafka_config import Properties, open_consumer
from cachemind.adapters.kafka_errors import kafka_error, log_error
from cachemind.adapters.kafka_groups import KafkaGroupOffsets
from cachemind.adapters.kafka_transaction import KafkaSoleWriter
from cachemind.core.topics import TopicSpec
from cachemind.errors import LogRejected
from cachemind.ports import Headers
from cachemind.ports.commands import DeadLetter
from cachemind.types import Lsn, Offset, Partition

DEADLINE_S: Final = 10.0
KNOWN_S: Final = 60.0
"""For how long a topic that was there is taken to be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTopics:
    """What is read and written. `forbidden` are topics that no answer may go to."""

    requests: str
    wal: str
    dlq: TopicSpec
    group: str
    forbidden: Collection[str]


class KafkaRequestSession:
    """`RequestSession` of one partition. Use it from one thread."""

    def __init__(
        self, properties: Properties, topics: RequestTopics, partition: Partition
    ) -> None:
        """Contact no broker yet. Raises: `InvalidSetting`."""
        self._properties = properties
        self._topics = topics
        self._partition = partition
        largest = {"message.max.bytes": str(topics.dlq.max_message_bytes)}
        self._writer = _Writer(
            {**properties, **largest},
            topics.requests,
            f"{topics.group}.{partition}",
            DEADLINE_S,
        )
        self._offsets = KafkaGroupOffsets(
            properties, topics.group, topics.requests, DEADLINE_S
        )
        # Never joins: Kafka takes offsets in a transaction from whoever owns the id.
        self._group = open_consumer(properties, {"group.id": topics.group})
        self._seen: dict[str, float] = {}

    def take_over(self) -> Offset:
        """Shut out whoever owned it; return the offset of the next command."""
        self._writer.take_over()
        found = self._offsets.committed([self._partition])[self._partition]
        return Offset(0) if found is None else found

    def refuses(self, reply_to: str) -> str | None:
        """Return why no answer may go to that topic, None where it may."""
        if reply_to in self._topics.forbidden or reply_to.startswith("__"):
            return f"answers may not go to {reply_to}"
        if time.monotonic() - self._seen.get(reply_to, -KNOWN_S) < KNOWN_S:
            return None
        if not _exists(self._properties, reply_to):
            return f"there is no topic {reply_to}"
        self._seen[reply_to] = time.monotonic()
        return None

    def append(self, key: bytes, value: bytes, headers: Headers) -> Lsn:
        """Return where an event is on the WAL, once committed."""
        return self._writer.append_to(self._topics.wal, key, value, headers)

    def answer(
        self, topic: str, key: bytes, value: bytes, headers: Headers, after: Offset
    ) -> None:
        """Commit an answer together with the next offset to read."""
        self._writer.append_to(topic, key, value, headers, self._moved(after))

    def bury(self, letter: DeadLetter, after: Offset) -> None:
        """Commit a dead letter together with the next offset to read."""
        self._writer.append_to(self._topics.dlq.name, *letter, self._moved(after))

    def close(self) -> None:
        """Leave the cluster."""
        self._writer.close()
        self._offsets.close()
        self._group.close()

    def _moved(self, after: Offset) -> _Moved:
        place = TopicPartition(self._topics.requests, self._partition, after)
        return _Moved(place, self._group.consumer_group_metadata())


@dataclass(frozen=True, slots=True)
class _Moved:
    """A group's offset, to be committed with a record."""

    place: TopicPartition
    group: object


class _Writer(KafkaSoleWriter):
    """One record a transaction, to any topic, with a group's offset or without."""

    def append_to(
        self,
        topic: str,
        key: bytes,
        value: bytes,
        headers: Headers,
        moved: _Moved | None = None,
    ) -> Lsn:
        """Return where the record is, once it is committed.

        Raises: `LogUnavailable`, `LogRejected`; then take over again.
        """
        self._topic = topic

        def with_offset() -> None:
            if moved is not None:
                self._send(moved)

        return self.append_all([(key, value, headers)], with_offset)[0]

    def _send(self, moved: _Moved) -> None:
        producer = self._ready(time.monotonic())
        try:
            producer.send_offsets_to_transaction(
                [moved.place], moved.group, self._timeout_s
            )
        except KafkaException as error:
            raise log_error("commit an offset", kafka_error(error)) from error


def _exists(properties: Properties, topic: str) -> bool:
    """Return whether there is such a topic; asking does not make it."""

    def ask(client: AdminClient, limit_s: float) -> bool:
        found = client.describe_topics(
            TopicCollection([topic]), request_timeout=limit_s
        )
        try:
            return bool(answer(found[topic], limit_s).partitions)
        except KafkaException as error:
            if kafka_error(error).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            return False

    with closing(KafkaAdmin(properties, DEADLINE_S)) as admin:
        try:
            return admin.ask(f"find topic {topic}", ask)
        except LogRejected:
            # It may be there: to whoever may not see it, it is not.
            return False
