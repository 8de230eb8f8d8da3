"""Deletes the beginning of partitions (Kafka's DeleteRecords)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from cachemind.adapters.kafka_admin import DEADLINE_S, KafkaAdmin, answer
from cachemind.adapters.kafka_config import Properties
from cachemind.types import Offset, Partition


def delete_records(
    properties: Properties,
    topic: str,
    before: Mapping[Partition, Offset],
    deadline_s: float = DEADLINE_S,
) -> Mapping[Partition, Offset]:
    """Delete every record below the offset of its partition; return the first left.

    Kafka frees the space segment by segment, later. There is no way back.
    Raises: `LogUnavailable`; `LogRejected` where the principal may not.
    """
    if not before:
        return {}
    wanted = [TopicPartition(topic, p, at) for p, at in before.items()]

    def ask(client: AdminClient, limit_s: float) -> Mapping[Partition, Offset]:
        asked = client.delete_records(
            wanted, request_timeout=limit_s, operation_timeout=limit_s
        )
        return {
            Partition(place.partition): Offset(answer(future, limit_s).low_watermark)
            for place, future in asked.items()
        }

    with closing(KafkaAdmin(properties, deadline_s)) as admin:
        return admin.ask("delete records", ask)
