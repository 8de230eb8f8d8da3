"""Builds and runs the process that answers commands from Kafka-native clients."""

from __future__ import annotations

import asyncio
import secrets
import signal
import socket
from collections.abc import Callable
from contextlib import closing
from typing import Final

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_requests import KafkaRequestSession, RequestTopics
from cachemind.adapters.kafka_topics import LogIdentity
from cachemind.agents.commanding import Commanding, CommandingDeps
from cachemind.agents.requests import Handler, RequestsDeps, run_requests
from cachemind.core.partitioner import partition_of
from cachemind.types import Namespace, Partition, WriterId
from cachemind_services.bootstrap.checkpoints import dying_at
from cachemind_services.bootstrap.log import codec_of, identify, kafka_of, topics_of
from cachemind_services.bootstrap.past import StoredPast
from cachemind_services.bootstrap.past_files import open_past
from cachemind_services.settings import Settings

WAIT_S: Final = 5.0


def run(settings: Settings, failpoint: str = "") -> int:
    """Answer until SIGTERM; return the exit code of `run_requests`.

    The process dies where it reaches `failpoint`, for tests.
    Raises: `TopicMisconfigured`, `LogUnavailable`, `InvalidSetting`.
    """
    return asyncio.run(_run(settings, identify(settings), dying_at(failpoint)))


async def _run(
    settings: Settings, log: LogIdentity, failpoint: Callable[[str], None]
) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    kafka, topics = kafka_of(settings), topics_of(settings)

    def handler(partition: Partition) -> Handler:
        pasts = _Pasts(settings, log)
        return _handler(settings, partition, pasts, failpoint, stop.is_set)

    reader = KafkaReader(kafka, topics.requests.name, request_s=WAIT_S)
    with closing(reader):
        return await run_requests(
            RequestsDeps(
                kafka=kafka,
                topic=topics.requests.name,
                group=group_of_requests(settings),
                open_handler=handler,
                ask_log=lambda: reader.bounds(Partition(0)),
                stop=stop,
            )
        )


def group_of_requests(settings: Settings) -> str:
    """Return the group of all processes that answer: one for the installation."""
    return f"{settings.topic_prefix}.requests"


def _handler(
    settings: Settings,
    partition: Partition,
    pasts: _Pasts,
    failpoint: Callable[[str], None],
    stopping: Callable[[], bool],
) -> Handler:
    topics = topics_of(settings)
    ours = {spec.name for spec in topics.all()} - {topics.replies.name}
    names = RequestTopics(
        requests=topics.requests.name,
        wal=topics.wal.name,
        dlq=topics.dlq,
        group=group_of_requests(settings),
        forbidden=frozenset(ours),
    )
    host, chance = socket.gethostname(), secrets.token_hex(4)
    return _Handler(
        pasts,
        CommandingDeps(
            session=KafkaRequestSession(kafka_of(settings), names, partition),
            topic=names.requests,
            past=pasts.of,
            codec=codec_of(settings),
            clock=SystemClock(),
            random=secrets.token_bytes,
            writer=WriterId(f"requests-{host}-{partition}-{chance}"),
            failpoint=failpoint,
            stopping=stopping,
        ),
    )


class _Handler(Commanding):
    """Closes what it alone uses, on the thread that uses it."""

    def __init__(self, pasts: _Pasts, deps: CommandingDeps) -> None:
        super().__init__(deps)
        self._pasts = pasts

    def close(self) -> None:
        """Leave the cluster and release the stores."""
        super().close()
        self._pasts.close()


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
