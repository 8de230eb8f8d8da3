"""A consumer group's committed offsets, while no member of it is alive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from cachemind.adapters.kafka_admin import KafkaAdmin, answer
from cachemind.adapters.kafka_config import Properties
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
    """The `GroupOffsets` of one group on one topic, by Kafka's admin API."""

    def __init__(
        self,
        properties: Properties,
        group: str,
        topic: str,
        deadline_s: float = GROUP_DEADLINE_S,
    ) -> None:
        """Raises: `InvalidSetting`; contacts no broker yet."""
        self._admin = KafkaAdmin(properties, deadline_s)
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
        found = self._admin.ask(
            f"offsets of group {self._group}", lambda c, s: self._list(c, wanted, s)
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
        self._admin.ask(
            f"commit offsets of group {self._group}",
            lambda c, s: self._alter(c, wanted, s),
        )

    def close(self) -> None:
        """Leave the cluster."""
        self._admin.close()

    def _list(
        self, client: AdminClient, wanted: list[TopicPartition], limit_s: float
    ) -> list[TopicPartition]:
        asked = client.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self._group, wanted)],
            # Not what a transaction of the group may still take back.
            require_stable=True,
            request_timeout=limit_s,
        )
        return self._places(answer(asked[self._group], limit_s))

    def _alter(
        self, client: AdminClient, wanted: list[TopicPartition], limit_s: float
    ) -> None:
        asked = client.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self._group, wanted)],
            request_timeout=limit_s,
        )
        try:
            self._places(answer(asked[self._group], limit_s))
        except KafkaException as error:
            if kafka_error(error).code() not in _ALIVE:
                raise
            raise LogRejected(
                f"group {self._group} has a live member, which alone may commit"
            ) from error

    def _places(self, result: ConsumerGroupTopicPartitions) -> list[TopicPartition]:
        places = result.topic_partitions or []
        for place in places:
            if place.error is not None:
                raise KafkaException(place.error)
        return places


def _offset(found: int) -> Offset | None:
    return Offset(found) if found >= 0 else None
