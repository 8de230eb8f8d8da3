"""Builds and runs the process that answers commands from Kafka-native clients."""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
import socket
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Final, Protocol

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.kafka_grants import KafkaGrants
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_requests import KafkaRequestSession, RequestTopics
from cachemind.adapters.kafka_topics import LogIdentity
from cachemind.agents.batching import Batching, BatchingDeps
from cachemind.agents.command_partitions import Handler
from cachemind.agents.commanding import Commanding, CommandingDeps
from cachemind.agents.outbox import OutboxTopics
from cachemind.agents.own_thread import OwnThread
from cachemind.agents.requests import RequestsDeps, run_requests
from cachemind.codec.command_framing import Framing
from cachemind.core.grant_topics import RequestTopic, reply_rule, request_topic
from cachemind.core.partitioner import partition_of
from cachemind.ports import LogRecord
from cachemind.ports.commands import CommandDesk
from cachemind.types import Namespace, Partition, WriterId
from cachemind_services.bootstrap.checkpoints import dying_at
from cachemind_services.bootstrap.command_ports import CommandPorts
from cachemind_services.bootstrap.log import (
    codec_of,
    command_framing,
    identify,
    kafka_of,
    topics_of,
)
from cachemind_services.bootstrap.past import StoredPast
from cachemind_services.bootstrap.past_files import open_past
from cachemind_services.settings import TRUST, Settings

logger = logging.getLogger(__name__)
WAIT_S: Final = 5.0
LEAVE_S: Final = 2.5


class MakeDesk(Protocol):
    """Returns what decides the commands of one partition."""

    def __call__(self, settings: Settings, ports: CommandPorts) -> CommandDesk:
        """Return a desk that is not open yet."""
        ...


def run(settings: Settings, make_desk: MakeDesk, failpoint: str = "") -> int:
    """Answer until SIGTERM; return the exit code of `run_requests`.

    The process dies where it reaches `failpoint`, for tests.
    Raises: `TopicMisconfigured`, `LogUnavailable`, `InvalidSetting`.
    """
    log, dies = identify(settings), dying_at(failpoint)
    return asyncio.run(_run(settings, log, make_desk, dies))


async def _run(
    settings: Settings,
    log: LogIdentity,
    make_desk: MakeDesk,
    failpoint: Callable[[str], None],
) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    kafka, topics = kafka_of(settings), topics_of(settings)
    ports = CommandPorts(settings, log)
    framing = await asyncio.to_thread(command_framing, settings, register=True)

    process = _Process(
        settings=settings,
        log=log,
        framing=framing,
        failpoint=failpoint,
        stopping=stop.is_set,
    )

    def handler(topic: str, partition: Partition) -> Handler:
        desk = make_desk(settings, ports)
        return _Answering(process, topic_of(settings, topic), partition, desk)

    reader = KafkaReader(kafka, topics.requests.name, request_s=WAIT_S)
    grants = KafkaGrants(kafka, settings.topic_prefix)
    try:
        with closing(reader), closing(grants):
            return await run_requests(
                RequestsDeps(
                    kafka=kafka,
                    topic=topics.requests.name,
                    group=group_of_requests(settings),
                    open_handler=handler,
                    find_grants=grants.find,
                    ask_log=lambda: reader.bounds(Partition(0)),
                    stop=stop,
                )
            )
    finally:
        await ports.close()


def group_of_requests(settings: Settings) -> str:
    """Return the group of all processes that answer: one for the installation."""
    return f"{settings.topic_prefix}.requests"


def topic_of(settings: Settings, name: str) -> RequestTopic:
    """Return what a topic of commands is. Raises: `InvalidEvent`."""
    trusted = not settings.auth or settings.shared_requests == TRUST
    return request_topic(settings.topic_prefix, name, trusted=trusted)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    """What all partitions of one process are answered with."""

    settings: Settings
    log: LogIdentity
    framing: Framing
    failpoint: Callable[[str], None]
    stopping: Callable[[], bool]


class _Answering:
    """One partition's session, on a thread of its own, and what stands on it."""

    def __init__(
        self,
        process: _Process,
        topic: RequestTopic,
        partition: Partition,
        desk: CommandDesk,
    ) -> None:
        settings = process.settings
        topics, kept_at = topics_of(settings), _kept_at(settings, topic, partition)
        self._place = f"{topic.name}[{partition}]"
        self._pasts = _Pasts(settings, process.log)
        self._session = _session(settings, topic, partition, kept_at)
        self._thread = OwnThread(f"requests-{partition}")
        self._batching = Batching(
            BatchingDeps(
                session=self._session,
                thread=self._thread,
                commanding=self._commanding(process, topic, partition),
                desk=desk,
                topics=OutboxTopics(
                    requests=topic,
                    answers=topics.answers.name,
                    kept_at=kept_at,
                    dlq=topics.dlq.name,
                ),
                clock=SystemClock(),
                random=secrets.token_bytes,
                failpoint=process.failpoint,
                framing=process.framing,
            )
        )

    def _commanding(
        self, process: _Process, topic: RequestTopic, partition: Partition
    ) -> Commanding:
        host, chance = socket.gethostname(), secrets.token_hex(4)
        return Commanding(
            CommandingDeps(
                session=self._session,
                topic=topic,
                past=self._pasts.of,
                codec=codec_of(process.settings),
                clock=SystemClock(),
                random=secrets.token_bytes,
                writer=WriterId(f"requests-{host}-{partition}-{chance}"),
                failpoint=process.failpoint,
                stopping=process.stopping,
                framing=process.framing,
            )
        )

    async def run(self, inbox: asyncio.Queue[LogRecord]) -> None:
        """Answer until cancelled."""
        await self._batching.run(inbox)

    @property
    def idle(self) -> bool:
        """Return whether all that it took is answered."""
        return self._batching.idle

    async def close(self) -> None:
        """Leave the cluster and release the stores, on the thread that uses them."""
        await self._batching.close()
        if not await self._thread.finish(self._release, LEAVE_S):
            logger.warning("requests of %s are left so", self._place)
        self._thread.close()

    def _release(self) -> None:
        self._session.close()
        self._pasts.close()


def _kept_at(
    settings: Settings, topic: RequestTopic, partition: Partition
) -> Partition:
    """Return the partition of the topic of answers that a topic's are kept in."""
    if topic.grant is None:
        return partition
    return partition_of(topic.grant.namespace.encode(), settings.partitions)


def _session(
    settings: Settings, topic: RequestTopic, partition: Partition, kept_at: Partition
) -> KafkaRequestSession:
    topics = topics_of(settings)
    own = frozenset(spec.name for spec in topics.all())
    names = RequestTopics(
        requests=topic.name,
        answers=topics.answers.name,
        kept_at=kept_at,
        wal=topics.wal,
        dlq=topics.dlq,
        group=group_of_requests(settings),
        replies=reply_rule(settings.topic_prefix, topic, own),
    )
    return KafkaRequestSession(kafka_of(settings), names, partition)


class _Pasts:
    """The past of each WAL partition that is asked about, opened once."""

    def __init__(self, settings: Settings, log: LogIdentity) -> None:
        self._settings = settings
        self._log = log
        self._opened: dict[int, StoredPast] = {}

    def of(self, namespace: Namespace) -> StoredPast:
        """Return the past that `namespace` is in."""
        home = partition_of(namespace.encode(), self._settings.partitions)
        if home not in self._opened:
            self._opened[home] = open_past(self._settings, self._log, namespace)
        return self._opened[home]

    def close(self) -> None:
        """Release files and connections."""
        while self._opened:
            self._opened.popitem()[1].close()
