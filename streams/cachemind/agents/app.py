"""The Faust app that hosts the agents: a group consumer and nothing else.

No tables, no changelog, no leader topic, no web server: state and position are in
our own stores, so Faust only carries records.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Set
from typing import Any, Final, cast

import faust
from aiokafka import (  # type: ignore[import-untyped] # ships no types
    AIOKafkaConsumer,
)
from aiokafka.errors import (  # type: ignore[import-untyped] # ships no types
    KafkaError,
)
from faust.assignor.partition_assignor import PartitionAssignor
from faust.exceptions import ConsumerNotStarted
from faust.transport.consumer import RecordMap
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode.threads import ServiceThread, WorkerThread

from cachemind.agents.any_header import read_any_header
from cachemind.agents.faust_settings import broker_access
from cachemind.agents.pacing import APART_S, Pacing
from cachemind.agents.spread_assignor import SpreadAssignor
from cachemind.errors import LogUnavailable
from cachemind.types import Offset, Partition

log = logging.getLogger(__name__)

COMMIT_INTERVAL_S: Final = 1.0
SESSION_TIMEOUT_S: Final = 10.0
"""How long the group waits for a member that was killed; until then the partitions
are kept up in bulk."""

HEARTBEAT_S: Final = 2.0
REQUEST_TIMEOUT_S: Final = 40.0
BUFFERED_EVENTS: Final = 1024


class _Worker(WorkerThread):
    """A thread that never keeps the process alive.

    A consumer that waits for an absent coordinator cannot be told to stop.
    """

    def __init__(self, service: ServiceThread) -> None:
        super().__init__(service)
        self.daemon = True


class _Thread(driver.AIOKafkaConsumerThread):
    """aiokafka's consumer, reading committed records only, and paced under load."""

    Worker = _Worker
    mundane_level = "debug"
    _pacing: Pacing | None = None
    _apart_s = APART_S

    def _create_worker_consumer(self, transport: driver.Transport) -> AIOKafkaConsumer:
        # Faust asks for read_committed only under its exactly-once mode, which
        # brings a transaction manager that we have no use for. The consumer hands
        # this attribute to its fetcher when it starts.
        consumer = super()._create_worker_consumer(transport)
        consumer._isolation_level = "read_committed"
        return consumer

    async def _fetch_records(
        self,
        consumer: AIOKafkaConsumer,
        active_partitions: set[TP],
        timeout: float | None = None,  # noqa: ASYNC109  # as in Faust
        max_records: int | None = None,
    ) -> RecordMap:
        # On the consumer's own thread: its heartbeats go on meanwhile. aiokafka
        # asks the broker again only once what it holds was taken.
        pacing = self._pacing = self._pacing or Pacing(self._apart_s)
        await asyncio.sleep(pacing.wait_s(time.monotonic()))
        records = await super()._fetch_records(
            consumer, active_partitions, timeout, max_records
        )
        if records:
            pacing.found(time.monotonic())
        return records

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        # A group offset is a hint to operators' tools. Faust crashes the worker
        # when a commit fails, as it does whenever the coordinator moves.
        consumer = self._ensure_consumer()
        assigned = self.assignment()
        try:
            await consumer.commit(
                {
                    driver.ensure_aiokafka_TP(tp): offset
                    for tp, offset in offsets.items()
                    if tp in assigned
                }
            )
        except KafkaError as error:
            log.warning("group offsets not committed: %s", type(error).__name__)
            return False
        return True

    def _log_slow_processing_commit(self, msg: str, *args: object) -> None:
        # The offset is a hint, and Faust's alarm is false where a partition was quiet
        # for minutes and has a record again, as those of key events have.
        log.debug(msg.strip(), *args)


class _SilentThread(_Thread):
    """One whose group is told of progress by others, in transactions.

    Somebody waits for the answer to each record, and each batch is a transaction: that
    is pace enough.
    """

    _apart_s = 0.005

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        del offsets
        return True

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Say nothing: who takes no records, or later, is watched by its own means.

        Faust would call it an error every few seconds once 5 minutes are over.
        """


class _Consumer(driver.Consumer):
    """Faust's consumer on our thread.

    `rounds` counts fetches: what one finds is handed on, or dropped, before the next.
    `held_in` says in which of them a partition was held back last.
    """

    mundane_level = "debug"
    rounds = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.held_in: dict[TP, int] = {}

    async def _wait_next_records(
        self,
        timeout: float,  # noqa: ASYNC109  # as in Faust
    ) -> tuple[RecordMap | None, set[TP] | None]:
        self.rounds += 1
        return await super()._wait_next_records(timeout)

    async def skip_to(self, tp: TP, offset: int) -> None:
        """Go on at `offset`, as if all below it had been acknowledged."""
        # Faust counts acknowledgements one by one: without this, a jump over
        # millions of offsets becomes a list of as many numbers.
        self._gap.pop(tp, None)
        self._acked.pop(tp, None)
        self._acked_index.pop(tp, None)
        self._committed_offset.pop(tp, None)
        await self.seek_wait({tp: offset})

    def _new_consumer_thread(self) -> _Thread:
        return _Thread(self, loop=self.loop, beacon=self.beacon)


class _SilentConsumer(_Consumer):
    """Ours, on a thread that commits nothing."""

    def _new_consumer_thread(self) -> _SilentThread:
        return _SilentThread(self, loop=self.loop, beacon=self.beacon)


class _App(faust.App):
    """An app without tables, for which Faust would make folders where it is run."""

    mundane_level = "debug"

    def _create_directories(self) -> None:
        pass


class _Transport(driver.Transport):
    """Faust's aiokafka transport with our consumer."""

    Consumer = _Consumer


class _SilentTransport(driver.Transport):
    """The same, of an app that commits nothing."""

    Consumer = _SilentConsumer


def build_app(
    settings: Mapping[str, str],
    group: str,
    *,
    commits: bool = True,
    instance: str | None = None,
) -> faust.App:
    """Return an app whose consumer joins `group` on the cluster of `settings`.

    Call it inside the running event loop. `settings` has librdkafka's names. Unless it
    `commits`, the group's offsets are left to whoever commits them with their work.
    Then each partition goes to whoever has fewest, whatever its number.
    With an `instance`, which no other member may have, it gets back at once what it
    held before it died; others get it as late as without (KIP-345).
    Raises: `InvalidSetting`.
    """
    access = broker_access(settings)
    read_any_header()
    app = _App(
        group,
        broker=list(access.urls),
        broker_credentials=access.credentials,
        broker_client_id=access.client_id,
        consumer_group_instance_id=instance,
        broker_commit_interval=COMMIT_INTERVAL_S,
        broker_session_timeout=SESSION_TIMEOUT_S,
        broker_heartbeat_interval=HEARTBEAT_S,
        broker_request_timeout=REQUEST_TIMEOUT_S,
        consumer_auto_offset_reset="earliest",
        stream_buffer_maxsize=BUFFERED_EVENTS,
        stream_wait_empty=False,
        store="memory://",
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        autodiscover=False,
        PartitionAssignor=PartitionAssignor if commits else SpreadAssignor,
    )
    transport = _Transport if commits else _SilentTransport
    app.transport = transport(app.conf.broker_consumer, app)
    return app


def raw_topic(app: faust.App, *names: str) -> faust.TopicT:
    """Return the topics `names` with keys and values as the bytes on the log."""
    return app.topic(
        *names,
        key_type=bytes,
        value_type=bytes,
        key_serializer="raw",
        value_serializer="raw",
        allow_empty=True,
        internal=True,
    )


async def serve(app: faust.App) -> None:
    """Run `app` until it gives up; leave the group in order when cancelled.

    Raises: `LogUnavailable` where it cannot start.
    """
    app.finalize()
    try:
        await app.start()
        await app.wait_until_stopped()
    except KafkaError as error:
        raise LogUnavailable(f"the group consumer: {type(error).__name__}") from error
    finally:
        await app.stop()


def held_partitions(app: faust.App, topic: str) -> Set[Partition]:
    """Return the partitions of `topic` that `app` is given by its group just now.

    None while the group is being rebalanced: Faust then delivers nothing.
    """
    if not app.started or app.rebalancing:
        return frozenset()
    try:
        assigned = app.consumer.assignment()
    except ConsumerNotStarted:
        return frozenset()
    return {Partition(tp.partition) for tp in assigned if tp.topic == topic}


def is_settled(app: faust.App) -> bool:
    """Return whether the group has told `app` which partitions it holds."""
    return app.started and not app.rebalancing


def hold_back(app: faust.App, topic: str, partition: Partition) -> None:
    """Have nothing of a held partition delivered; the next rebalance ends that."""
    consumer, place = cast(_Consumer, app.consumer), TP(topic, partition)
    consumer.pause_partitions({place})
    consumer.held_in[place] = consumer.rounds


async def go_on_at(
    app: faust.App, topic: str, partition: Partition, offset: Offset
) -> None:
    """Have a partition that was held back delivered from `offset` on.

    Where that cannot be, what is below comes too and is for nothing.
    """
    app.consumer.resume_partitions({TP(topic, partition)})
    await _skip_to(app, TP(topic, partition), offset)


async def go_on_just_at(
    app: faust.App, topic: str, partition: Partition, offset: Offset
) -> bool:
    """Have a partition that was held back delivered from `offset` on, or not at all.

    What was fetched when it was held back is dropped: without the jump there would be a
    gap. So there would be while the rest of that is still handed on: the end of it
    would come before what the jump leads to.
    """
    consumer, place = cast(_Consumer, app.consumer), TP(topic, partition)
    if consumer.rounds <= consumer.held_in.get(place, -1):
        return False
    if not await _skip_to(app, place, offset):
        return False
    consumer.resume_partitions({place})
    return True


async def _skip_to(app: faust.App, place: TP, offset: Offset) -> bool:
    try:
        await cast(_Consumer, app.consumer).skip_to(place, offset)
    except (KafkaError, ConsumerNotStarted, TimeoutError) as error:
        log.info("the group consumer was not sent ahead: %s", type(error).__name__)
        return False
    return True


def quiet_logs() -> None:
    """Keep Faust's and aiokafka's running commentary out of the log.

    They report each of their many retries as an error while a broker is away; the
    watch on the log's end says the same once.
    """
    for name in ("faust", "mode"):
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
