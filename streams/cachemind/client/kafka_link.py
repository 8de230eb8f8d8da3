"""Commands out, replies in: one producer, one consumer, one thread.

A reply's Kafka key is the command's correlation id, which is the client's to choose:
so it is chosen such that all replies come in one partition, and no other is read.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final

import orjson
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from cachemind.adapters.kafka_config import open_consumer, open_producer
from cachemind.adapters.kafka_errors import kafka_error
from cachemind.client.errors import (
    CallFailed,
    NoCache,
    NotAuthenticated,
    NotValid,
    Unavailable,
)
from cachemind.client.parts import PartReader
from cachemind.client.results import Answer
from cachemind.codec.commands import decode_reply, encode_command
from cachemind.core.commands import CORRELATION_ID, DEADLINE, REPLY_TO, Command, Reply
from cachemind.core.partitioner import partition_of
from cachemind.errors import InvalidSetting, UndecodableRecord, UnknownSchema
from cachemind.types import Namespace

START_S: Final = 15.0
_POLL_S: Final = 0.05
_BATCH: Final = 500
_MS_PER_S: Final = 1_000
_LOG: Final = logging.getLogger("cachemind.client")
# What librdkafka goes on trying by itself.
_PASSING: Final = frozenset(
    {
        KafkaError._PARTITION_EOF,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where commands go and replies come from, in which namespace.

    `group` is named to Kafka and never joined; empty for the one of all readers.
    """

    kafka: Mapping[str, str]
    namespace: Namespace
    requests: str
    replies: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class _Open:
    """The connections; replies come in partition `home` of `partitions`."""

    producer: Producer
    consumer: Consumer
    home: int
    partitions: int


class KafkaLink:
    """Sends commands and hands out the replies. Safe to use from many threads."""

    def __init__(self, place: Place) -> None:
        """Contact no broker yet."""
        self.namespace = place.namespace
        self._place = place
        self._lock = threading.Lock()
        self._waiting: dict[bytes, Future[Reply]] = {}
        self._open: _Open | None = None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def send(
        self, command: Command, correlation_id: bytes, deadline_s: float
    ) -> Future[Reply]:
        """Return the future of the reply; sent again, only of the newest sending.

        Units: `deadline_s`, seconds since the Unix epoch, is when nobody waits for it
        any more. Raises: `Unavailable`, `NotValid`; the future raises these, `NoCache`.
        """
        opened, future = self._open, Future[Reply]()
        if opened is None:
            raise Unavailable("the connection to Kafka was lost", sent=False)
        future.set_running_or_notify_cancel()
        self._waiting[correlation_id] = future

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                self._fail(correlation_id, _failure(error))

        headers: list[tuple[str, str | bytes | None]] = [
            (REPLY_TO, self._place.replies.encode()),
            (CORRELATION_ID, correlation_id),
            (DEADLINE, str(int(deadline_s * _MS_PER_S)).encode()),
        ]
        try:
            opened.producer.produce(
                self._place.requests,
                encode_command(command),
                command.namespace.encode(),
                headers=headers,
                on_delivery=delivered,
            )
        except (BufferError, KafkaException, RuntimeError) as error:
            self._fail(correlation_id, _unsent(error))
        return future

    @property
    def is_open(self) -> bool:
        """Return whether `correlation_id` needs not wait for Kafka."""
        return self._open is not None

    def correlation_id(self, limit_s: float) -> bytes:
        """Return a new one, whose replies come where they are read.

        Connects first where need be, in `limit_s` seconds. Raises: `CallFailed`.
        """
        opened = self._opened(min(limit_s, START_S))
        while True:
            found = secrets.token_hex(16).encode()
            if partition_of(found, opened.partitions) == opened.home:
                return found

    def forget(self, correlation_id: bytes) -> None:
        """Wait for no reply to it any more."""
        self._waiting.pop(correlation_id, None)

    def close(self) -> None:
        """Leave the cluster; who waits is told so, by `CallFailed`."""
        self._closing.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    # ---- connections ---------------------------------------------------------------

    def _opened(self, limit_s: float) -> _Open:
        until = time.monotonic() + limit_s
        with self._lock:
            if self._closing.is_set():
                raise CallFailed("the client is closed")
            if self._open is None:
                self._open = self._connect(until)
                self._thread = threading.Thread(
                    target=self._run,
                    args=(self._open,),
                    name="cachemind-replies",
                    daemon=True,
                )
                self._thread.start()
            return self._open

    def _connect(self, until: float) -> _Open:
        replies = self._place.replies
        troubles: list[KafkaError] = []
        try:
            group = self._place.group
            named = {"group.id": group} if group else {}
            consumer = open_consumer(self._place.kafka, named, troubles.append)
        except InvalidSetting as error:
            raise NotValid(f"kafka: {error}", field="kafka") from error
        try:
            found = consumer.list_topics(replies, _left_s(until)).topics[replies]
            if found.error is not None or not found.partitions:
                hint = "; `cachemind grants` gives it" if self._place.group else ""
                problem = f"there is no topic {replies} that may be read here{hint}"
                raise Unavailable(problem, sent=False)
            home = secrets.randbelow(len(found.partitions))
            at = TopicPartition(replies, home)
            # From the end on: what is there already is no answer to us.
            _, at.offset = consumer.get_watermark_offsets(at, _left_s(until))
            consumer.assign([at])
            producer = open_producer(self._place.kafka)
        except KafkaException as error:
            consumer.poll(0)  # what was the matter is told to who polls
            consumer.close()
            brokers = self._place.kafka["bootstrap.servers"]
            raise _unreached(brokers, [kafka_error(error), *troubles]) from error
        except CallFailed:
            consumer.close()
            raise
        return _Open(producer, consumer, home, len(found.partitions))

    # ---- on the link's own thread ---------------------------------------------------

    def _run(self, opened: _Open) -> None:
        why = CallFailed("the client was closed before the reply came")
        try:
            while not self._closing.is_set():
                opened.producer.poll(0)
                first = opened.consumer.poll(_POLL_S)
                if first is not None:
                    more = opened.consumer.consume(_BATCH, 0)
                    for message in (first, *more):
                        self._take(message)
        except KafkaException as error:
            why = Unavailable(f"the connection failed: {kafka_error(error).str()}")
            _LOG.warning("replies of %s: %s", self._place.replies, why)
        finally:
            with self._lock:
                self._open = None
            self._end(opened, why)

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.code() not in _PASSING:
                raise KafkaException(error)
            return
        future = self._waiting.pop(message.key() or b"", None)
        if future is None:
            return  # another client's, or one that nobody waits for any more
        try:
            future.set_result(decode_reply(message.value() or b""))
        except (UndecodableRecord, UnknownSchema) as unread:
            future.set_exception(NoCache(f"the reply cannot be read: {unread}"))

    def _end(self, opened: _Open, why: CallFailed) -> None:
        opened.producer.purge()
        opened.producer.flush(1.0)
        opened.producer.close()
        opened.consumer.close()
        for correlation_id in list(self._waiting):
            self._fail(correlation_id, why)

    def _fail(self, correlation_id: bytes, error: CallFailed) -> None:
        future = self._waiting.pop(correlation_id, None)
        if future is not None:
            future.set_exception(error)


def _failure(error: KafkaError) -> CallFailed:
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return NotValid("the request is too large", status=413, field="body")
    return Unavailable(f"Kafka did not take the command: {error.str()}")


def _unsent(error: BufferError | KafkaException | RuntimeError) -> CallFailed:
    match error:
        case KafkaException():
            return _failure(kafka_error(error))
        case BufferError():
            return Unavailable("the queue to Kafka is full", sent=False)
        case _:
            # How confluent-kafka says that the producer was closed meanwhile.
            return Unavailable("the connection was lost", sent=False)


def _left_s(until: float) -> float:
    return max(until - time.monotonic(), 0.05)


def now_s() -> float:
    """Return the seconds since the Unix epoch."""
    return time.time()


def whole(answer: Answer) -> tuple[PartReader, bytes]:
    """Return a completion that came whole as a stream would be read: a reply is one
    record.
    """
    reader = PartReader(replace(answer, completion={}), streams=False)
    return reader, orjson.dumps(answer.completion)


def _unreached(brokers: str, troubles: Sequence[KafkaError]) -> CallFailed:
    """Return that no broker could be asked: who asks is nobody, or none answers."""
    for trouble in troubles:
        if trouble.code() == KafkaError._AUTHENTICATION:
            return NotAuthenticated(f"{brokers}: {trouble.str()}")
    problem = f"no broker answered at {brokers}: {troubles[0].str()}"
    return Unavailable(problem, sent=False)
