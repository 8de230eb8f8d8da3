"""Creates the topics that are missing and checks those that exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, unlisted
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from cachemind.adapters.kafka_admin import DEADLINE_S, KafkaAdmin, answer
from cachemind.adapters.kafka_config import Properties
from cachemind.adapters.kafka_errors import kafka_error, log_error
from cachemind.core.topics import FoundTopic, TopicSpec, check
from cachemind.errors import LogUnavailable, TopicMisconfigured

_URL_SAFE: Final = str.maketrans("+/", "-_")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogIdentity:
    """Which log this is: a store built from another one must not be used with it."""

    cluster_id: str
    topic_ids: Mapping[str, str]


def ensure_topics(
    properties: Properties,
    specs: Sequence[TopicSpec],
    deadline_s: float = DEADLINE_S,
) -> LogIdentity:
    """Create the missing topics, check all of them, and return which log it is.

    Each step waits up to `deadline_s` while brokers come up.
    Raises: `TopicMisconfigured`, the first of what is wrong, with all the others as
    its notes; `LogUnavailable` past the deadline; `LogRejected` where the principal
    may not; `InvalidSetting`.
    """
    names = [spec.name for spec in specs]
    with closing(KafkaAdmin(properties, deadline_s)) as admin:
        cluster_id = admin.ask("describe the cluster", _cluster_id)
        found = admin.ask("describe topics", lambda c, s: _describe(c, names, s))
        missing = [spec for spec in specs if spec.name not in found]
        if missing:
            admin.ask("create topics", lambda c, s: _create(c, missing, s))
            found = admin.ask("describe topics", lambda c, s: _all(c, names, s))
    _stop_if_wrong([fact for spec in specs for fact in check(spec, found[spec.name])])
    return LogIdentity(
        cluster_id=cluster_id,
        topic_ids={name: found[name].topic_id for name in names},
    )


def describe_topics(
    properties: Properties, names: Sequence[str], deadline_s: float = DEADLINE_S
) -> Mapping[str, FoundTopic]:
    """Return what the named topics are; one that does not exist is left out.

    Raises: `LogUnavailable`, `LogRejected`, `InvalidSetting`.
    """
    with closing(KafkaAdmin(properties, deadline_s)) as admin:
        return admin.ask("describe topics", lambda c, s: _describe(c, names, s))


def count_partitions(
    properties: Properties, names: Sequence[str], deadline_s: float = DEADLINE_S
) -> Mapping[str, int]:
    """Return how many partitions the named topics have; one not there is left out.

    Asks for nothing that takes more than the right to read the topics.
    Raises: `LogUnavailable`, `LogRejected`, `InvalidSetting`.
    """
    with closing(KafkaAdmin(properties, deadline_s)) as admin:
        return admin.ask("count partitions", lambda c, s: _counts(c, names, s))


def _counts(
    client: AdminClient, names: Sequence[str], limit_s: float
) -> dict[str, int]:
    found = client.list_topics(timeout=limit_s).topics
    return {name: len(found[name].partitions) for name in names if name in found}


def _stop_if_wrong(wrong: Sequence[TopicMisconfigured]) -> None:
    if not wrong:
        return
    first, *others = wrong
    for other in others:
        first.add_note(str(other))
    raise first


def _cluster_id(client: AdminClient, limit_s: float) -> str:
    cluster = answer(client.describe_cluster(request_timeout=limit_s), limit_s)
    if not cluster.cluster_id:
        raise LogUnavailable("the cluster has no id yet")
    return str(cluster.cluster_id)


def _all(
    client: AdminClient, names: Sequence[str], limit_s: float
) -> dict[str, FoundTopic]:
    """Return what the topics are; all of them, since they have just been created."""
    found = _describe(client, names, limit_s)
    unknown = sorted(set(names) - set(found))
    if unknown:
        # A broker answers from its own metadata, which may lag the controller's.
        raise LogUnavailable(f"created, not visible yet: {', '.join(unknown)}")
    return found


def _describe(
    client: AdminClient, names: Sequence[str], limit_s: float
) -> dict[str, FoundTopic]:
    asked = client.describe_topics(
        TopicCollection(list(names)), request_timeout=limit_s
    )
    described = {}
    for name, future in asked.items():
        try:
            described[name] = answer(future, limit_s)
        except KafkaException as error:
            if kafka_error(error).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
    settings = _settings(client, list(described), limit_s)
    return {
        name: FoundTopic(
            name=name,
            # As Kafka's own tools print it: the alphabet that is safe in URLs.
            topic_id=str(topic.topic_id).translate(_URL_SAFE),
            partitions=len(topic.partitions),
            replication_factor=min(len(p.replicas) for p in topic.partitions),
            settings=settings[name],
        )
        for name, topic in described.items()
    }


def _settings(
    client: AdminClient, names: Sequence[str], limit_s: float
) -> dict[str, dict[str, str]]:
    if not names:
        return {}
    asked = client.describe_configs(
        [ConfigResource(ResourceType.TOPIC, name) for name in names],
        request_timeout=limit_s,
    )
    return {
        resource.name: {
            name: entry.value
            for name, entry in answer(future, limit_s).items()
            if entry.value is not None
        }
        for resource, future in asked.items()
    }


def _create(client: AdminClient, specs: Sequence[TopicSpec], limit_s: float) -> None:
    asked = client.create_topics(
        [
            NewTopic(
                spec.name,
                num_partitions=spec.partitions,
                replication_factor=spec.replication_factor,
                config=spec.settings(),
            )
            for spec in specs
        ],
        operation_timeout=limit_s,
        request_timeout=limit_s,
    )
    lowest = {spec.name: spec.replication_factor for spec in specs}
    for name, future in asked.items():
        try:
            answer(future, limit_s)
        except KafkaException as error:
            _unless_there(name, lowest[name], kafka_error(error))


def _unless_there(name: str, replication_factor: int, error: KafkaError) -> None:
    """Accept that another process created the topic first: it is checked anyway."""
    if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
        return
    if error.code() == KafkaError.INVALID_REPLICATION_FACTOR:
        raise TopicMisconfigured(
            name,
            "replication.factor",
            f"at least {replication_factor}",
            "fewer brokers than that",
        )
    raise log_error(f"create topic {name}", error)
