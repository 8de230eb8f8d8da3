"""What the hosts of one log keep: told by each, and read by whoever asks."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

from cachemind.adapters.checkpoints import RocksCheckpoints
from cachemind.adapters.clock import SystemClock
from cachemind.adapters.host_catalog import HostCatalog
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import LogIdentity
from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.agents.telling import Telling, TellingDeps
from cachemind.core.hosts import Host, HostRecord, hosts_of
from cachemind.types import Partition
from cachemind_services.bootstrap.group import host_id
from cachemind_services.bootstrap.log import identify, kafka_of, topics_of
from cachemind_services.settings import Settings

WAIT_S: Final = 10.0
CLOSE_S: Final = 1.0
HOUR_NS: Final = 3_600 * 1_000_000_000
_HOSTNAME_CHARS: Final = 255


def known_hosts(settings: Settings, log: LogIdentity) -> Sequence[Host]:
    """Return every host of this log that was ever heard of. Raises: `LogUnavailable`.

    Those that live come with what binds the log; see `Host.lives`.
    """
    topics = topics_of(settings)
    name = topics.snapshots.name
    with closing(KafkaReader(kafka_of(settings), name, request_s=WAIT_S)) as reader:
        records = HostCatalog(reader).records()
    return hosts_of(
        records,
        log.cluster_id,
        log.topic_ids[topics.wal.name],
        SystemClock().now_ns(),
        settings.host_silence_h * HOUR_NS,
    )


def host_rows(settings: Settings) -> Sequence[Mapping[str, Any]]:
    """Return a row a host, for people to read. Raises: `LogUnavailable`."""
    return [_row(host) for host in known_hosts(settings, identify(settings))]


def _row(host: Host) -> Mapping[str, Any]:
    return {
        "host_id": host.host_id,
        "hostname": host.hostname,
        "seen_at_ns": host.seen_at_ns,
        "lives": host.lives,
        "checkpoints": [
            {
                "lsn": str(one.lsn),
                "created_at_ns": one.created_at_ns,
                "namespaces": {each.namespace: each.version for each in one.namespaces},
            }
            for one in host.checkpoints
        ],
    }


def telling_of(
    settings: Settings,
    log: LogIdentity,
    checkpoints: Mapping[Partition, RocksCheckpoints],
) -> Telling:
    """Return what tells the others of this host; start it, and stop it in the end."""
    clock = SystemClock()
    me = HostRecord(
        host_id=host_id(settings),
        hostname=socket.gethostname()[:_HOSTNAME_CHARS],
        noted_at_ns=clock.now_ns(),
        cluster_id=log.cluster_id,
        topic_id=log.topic_ids[topics_of(settings).wal.name],
        checkpoint=None,
    )
    return Telling(
        TellingDeps(me=me, kept=checkpoints, board=_board(settings), clock=clock)
    )


@contextmanager
def _board(settings: Settings) -> Iterator[HostCatalog]:
    kafka, topic = kafka_of(settings), topics_of(settings).snapshots.name
    with closing(KafkaReader(kafka, topic, request_s=WAIT_S)) as reader:
        writer = KafkaWriter(kafka, topic)
        try:
            yield HostCatalog(reader, writer)
        finally:
            writer.close(CLOSE_S)
