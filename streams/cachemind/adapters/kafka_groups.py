"""A consumer group's committed offsets, while no member of it is alive.

Read by a consumer that joins nothing, not by the admin API: librdkafka 2.16's
ListConsumerGroupOffsets ends the process with SIGSEGV (in rd_kafka_cgrp_op) when
the coordinator is still loading, as it is right after a broker's start. Written by
the admin API, not by that consumer: its commit waits 45 s for a coordinator that went
away, no time limit counts, and `close` waits with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from cachemind.adapters.kafka_admin import answer, repeated
from cachemind.adapters.kafka_config import Properties, open_admin, open_consumer
from cachemind.adapters.kafka_errors import kafka_error
from cachemind.errors import LogRejected
from cachemind.types import Offset, Partition

GROUP_DEADLINE_S: Final = 30.0

# How Kafka says that the group has members, which alone may commit.
_ALIVE: Final = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.NON_EMPTY_GROUP,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
    }
)


class KafkaGroupOffsets:
    """The `GroupOffsets` of one group on one topic."""

    def __init__(
        self,
        properties: Properties,
        group: str,
        topic: str,
        deadline_s: float = GROUP_DEADLINE_S,
    ) -> None:
        """Raises: `InvalidSetting`; contacts no broker yet."""
        self._consumer = open_consumer(properties, {"group.id": group})
        self._admin = open_admin(properties, _ignored)
        self._deadline_s = deadline_s
        self._group = group
        self._topic = topic

    def committed(
        self, partitions: Sequence[Partition]
    ) -> Mapping[Partition, Offset | None]:
        """Return the next offset that the group would read, None where none is set.

        Raises: `LogUnavailable`, `LogRejected`.
        """
        if not partitions:
            return {}
        wanted = [TopicPartition(self._topic, p) for p in partitions]
        found = repeated(
            f"offsets of group {self._group}",
            self._deadline_s,
            lambda limit_s: _checked(self._consumer.committed(wanted, limit_s)),
        )
        at = {Partition(place.partition): place.offset for place in found}
        return {p: _offset(at.get(p, -1)) for p in partitions}

    def commit(self, offsets: Mapping[Partition, Offset]) -> None:
        """Set the next offset to read of each partition, while the group is empty.

        Raises: `LogUnavailable`; `LogRejected` where the group has a live member
        or the principal may not.
        """
        if not offsets:
            return
        wanted = [TopicPartition(self._topic, p, at) for p, at in offsets.items()]
        repeated(
            f"commit offsets of group {self._group}",
            self._deadline_s,
            lambda limit_s: self._commit(wanted, limit_s),
        )

    def close(self) -> None:
        """Leave the cluster."""
        self._consumer.close()

    def _commit(self, wanted: list[TopicPartition], limit_s: float) -> None:
        # Fails where the coordinator is away or loading, which the admin call below
        # must not meet.
        self._consumer.committed(wanted, limit_s)
        asked = self._admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self._group, wanted)],
            request_timeout=limit_s,
        )
        try:
            _checked(answer(asked[self._group], limit_s).topic_partitions or [])
        except KafkaException as error:
            if kafka_error(error).code() not in _ALIVE:
                raise
            raise LogRejected(
                f"group {self._group} has a live member, which alone may commit"
            ) from error


def _ignored(error: KafkaError) -> None:
    """Connections are the log's to report; a question here has its own error."""


def _checked(places: list[TopicPartition]) -> list[TopicPartition]:
    for place in places:
        if place.error is not None:
            raise KafkaException(place.error)
    return places


def _offset(found: int) -> Offset | None:
    return Offset(found) if found >= 0 else None
