"""The Kafka side of every process: which log, in which encoding."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from cachemind.adapters.kafka_topics import LogIdentity, ensure_topics
from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rocks_view import RocksView
from cachemind.adapters.store_rows import StoreIdentity
from cachemind.codec import Codec
from cachemind.codec.command_framing import (
    Framing,
    RegistryFraming,
    SingleObjectFraming,
)
from cachemind.codec.commands import command_schema, reply_schema
from cachemind.core.topics import Mode, Topics, topics
from cachemind.errors import BrokerError, InvalidSetting, LogUnavailable
from cachemind.ports import SchemaIds
from cachemind.types import Partition
from cachemind_services.broker import EmbeddedBroker
from cachemind_services.settings import BOOTSTRAP, Settings

TOPICS_DEADLINE_S: Final = 20.0
logger = logging.getLogger("cachemind.registry")


def kafka_of(settings: Settings) -> dict[str, str]:
    """Return the librdkafka properties to connect with.

    Without `bootstrap.servers` they lead to the embedded broker of the data folder.
    Raises: `BrokerError` where none runs there.
    """
    if not settings.embedded:
        return dict(settings.kafka)
    status = EmbeddedBroker(settings.broker_dir).status()
    if status.bootstrap_servers is None:
        raise BrokerError(
            f"no Kafka is named by --bootstrap-servers and none runs on "
            f"{settings.broker_dir}; name the --data-dir of a `cachemind serve` that "
            "runs, or start one by `cachemind broker start`"
        )
    return {**settings.kafka, BOOTSTRAP: status.bootstrap_servers}


def topics_of(settings: Settings) -> Topics:
    """Return the topics that these settings ask for. Raises: `InvalidSetting`."""
    mode = Mode.PRODUCTION if settings.production else Mode.DEVELOPMENT
    try:
        return topics(settings.partitions, mode, settings.topic_prefix)
    except ValueError as error:
        raise InvalidSetting("CACHEMIND_TOPIC_PREFIX", str(error)) from error


def identify(settings: Settings, deadline_s: float = TOPICS_DEADLINE_S) -> LogIdentity:
    """Create or check the topics and return which log this is.

    Raises: `TopicMisconfigured`, `LogUnavailable`, `LogRejected`, `InvalidSetting`.
    """
    return ensure_topics(kafka_of(settings), topics_of(settings).all(), deadline_s)


def codec_of(settings: Settings) -> Codec:
    """Return the codec: Confluent framing with a registry, else single-object.

    Where the registry is away it is asked when there is something to encode, or to
    decode with an id that was not seen yet.
    Raises: `InvalidSetting`; `LogRejected` where it finds our schema incompatible.
    """
    codec = Codec(registry_of(settings))
    try:
        codec.prepare()
    except LogUnavailable as error:
        logger.warning("no record can be written yet: %s", error)
    return codec


def command_framing(settings: Settings, *, register: bool = False) -> Framing:
    """Return how commands are read and replies are framed.

    To `register` tells the schemas to the registry, if it answers, so that a client may
    look them up. Raises: `InvalidSetting`; `LogRejected` where it refuses them.
    """
    topics = topics_of(settings)
    commands = registry_of(settings, topics.requests.name)
    replies = registry_of(settings, topics.replies.name)
    if commands is None or replies is None:
        return SingleObjectFraming()
    if register:
        try:
            commands.id_for(command_schema())
            replies.id_for(reply_schema())
        except LogUnavailable as error:
            logger.warning("the schemas of commands are not registered yet: %s", error)
    return RegistryFraming(commands, replies)


def registry_of(settings: Settings, topic: str | None = None) -> SchemaIds | None:
    """Return the registry's ids of a topic's values, by default the WAL's.

    None where there is no registry. It is not asked yet. Raises: `InvalidSetting`.
    """
    if not settings.schema_registry_url:
        return None
    # Imported here: the extra that it needs is not installed by default.
    from cachemind.adapters.registry import RegistryIds

    return RegistryIds(
        settings.schema_registry_url, topic or topics_of(settings).wal.name
    )


def store_path(settings: Settings, partition: int) -> Path:
    """Return the folder of one partition's store."""
    return settings.data_dir / "store" / str(partition)


def store_identity(
    settings: Settings, log: LogIdentity, partition: int
) -> StoreIdentity:
    """Return what binds one partition's store to `log`."""
    return StoreIdentity(
        cluster_id=log.cluster_id,
        topic_id=log.topic_ids[topics_of(settings).wal.name],
        partition=Partition(partition),
    )


def open_views(
    settings: Settings, log: LogIdentity | None, scratch: Path | None = None
) -> list[RocksView]:
    """Return a view of every partition's store; of any log's where `log` is None.

    `scratch` keeps RocksDB's own logs of these readers; a killed process leaves
    them there.
    """
    memory = RocksMemory()
    return [
        RocksView(
            store_path(settings, number),
            memory,
            identity=None if log is None else store_identity(settings, log, number),
            scratch=scratch,
        )
        for number in range(settings.partitions)
    ]
