"""Appends to a Kafka topic, each append a future of its LSN."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message

from cachemind.adapters.kafka_config import Properties, open_producer
from cachemind.adapters.kafka_errors import kafka_error, log_error
from cachemind.errors import LogError, LogUnavailable
from cachemind.ports import Headers
from cachemind.types import Lsn, Offset, Partition

_POLL_S: Final = 0.1
"""How long the poll thread waits for something to happen; events end the wait."""

_REBUILD_PAUSE_S: Final = 0.5
_LOG: Final = logging.getLogger("cachemind.kafka")


class KafkaWriter:
    """A `LogWriter` on librdkafka: idempotent, acknowledged by all in-sync replicas.

    An append that is not acknowledged within `delivery.timeout.ms` (5 s unless set)
    fails; librdkafka looks once a second, so it may take a second longer. A full
    queue fails at once.

    After an error that ends the producer's idempotent session for good, a new
    producer takes over; `rebuilds` counts them.
    """

    def __init__(self, properties: Properties, topic: str) -> None:
        """Start the poll thread. Raises: `InvalidSetting`; contacts no broker yet."""
        self._properties = dict(properties)
        self._topic = topic
        self._pending: set[Future[Lsn]] = set()
        self._closing = threading.Event()
        self._swept = False
        self._fatal: str | None = None
        self._flush_s = 0.0
        self._given_up = 0
        self._producer = open_producer(self._properties)
        self.rebuilds = 0
        self._thread = threading.Thread(
            target=self._run, name=f"kafka-writer-{topic}", daemon=True
        )
        self._thread.start()

    @property
    def pending(self) -> int:
        """Return how many appends have no answer yet."""
        return len(self._pending)

    def append(self, key: bytes, value: bytes | None, headers: Headers) -> Future[Lsn]:
        """Return at once with a future of the record's LSN; see `LogWriter`.

        Without a value it takes back what the key meant, on a compacted topic.
        """
        future: Future[Lsn] = Future()
        # Running: nobody can cancel it, since the record may be on the log already.
        future.set_running_or_notify_cancel()
        if self._closing.is_set():
            future.set_exception(LogUnavailable("the writer is closed"))
            return future
        self._pending.add(future)
        try:
            self._producer.produce(
                self._topic,
                value,
                key,
                on_delivery=partial(self._delivered, future),
                headers=list(headers) or None,
            )
        except BufferError:
            self._fail(future, LogUnavailable("append: the queue to Kafka is full"))
        except KafkaException as error:
            self._fail(future, log_error("append", kafka_error(error)))
        except RuntimeError:
            self._fail(future, LogUnavailable("the writer is closed"))
        if self._swept:
            # `close` gave up what it saw; this one came too late to be seen.
            self._fail(future, LogUnavailable("the writer is closed"))
        return future

    def close(self, timeout_s: float) -> int:
        """Flush for at most `timeout_s`; return the number of records given up."""
        self._flush_s = timeout_s
        self._closing.set()
        self._thread.join()
        return self._given_up

    # ---- on the writer's own thread ------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._serve(_POLL_S)
                if self._fatal is not None:
                    self._rebuild(self._fatal)
            self._drain(time.monotonic() + self._flush_s)
        finally:
            self._closing.set()
            self._swept = True
            self._given_up = self._give_up("the writer closed before Kafka answered")
            self._producer.close()

    def _serve(self, wait_s: float) -> None:
        """Answer the futures whose records Kafka has answered."""
        try:
            self._producer.poll(wait_s)
        except KafkaException as error:
            # How confluent-kafka reports that the idempotent session is over.
            fact = kafka_error(error)
            self._fatal = f"{fact.name()}: {fact.str()}"

    def _drain(self, deadline: float) -> None:
        while self._pending and self._fatal is None and time.monotonic() < deadline:
            self._serve(min(_POLL_S, deadline - time.monotonic()))

    def _rebuild(self, reason: str) -> None:
        """Replace a producer that will never send again.

        Nothing reaches the old one meanwhile (librdkafka refuses), and the new one
        starts only when the old one's records have failed: so none can overtake.
        """
        _LOG.error("producer of %s must be rebuilt: %s", self._topic, reason)
        self._give_up(f"the producer failed for good: {reason}")
        self._fatal = None
        self._closing.wait(_REBUILD_PAUSE_S)
        self._producer = open_producer(self._properties)
        self.rebuilds += 1

    def _give_up(self, reason: str) -> int:
        """Fail whatever the producer still holds; return how much that was."""
        held = list(self._pending)
        self._producer.purge()
        self._serve(0)
        for future in list(self._pending):
            self._fail(future, LogUnavailable(f"append: {reason}"))
        return sum(future.exception() is not None for future in held)

    def _delivered(
        self, future: Future[Lsn], error: KafkaError | None, message: Message
    ) -> None:
        if error is not None:
            self._fail(future, log_error(f"append to {self._topic}", error))
            return
        partition, offset = message.partition(), message.offset()
        if partition is None or offset is None or offset < 0:
            # A retry of a batch so old that the broker no longer knows its offset.
            self._fail(future, LogUnavailable("append: Kafka did not say where"))
        elif self._take(future):
            future.set_result(Lsn(Partition(partition), Offset(offset)))

    # ---- on any thread -------------------------------------------------------------

    def _fail(self, future: Future[Lsn], error: LogError) -> None:
        if self._take(future):
            future.set_exception(error)

    def _take(self, future: Future[Lsn]) -> bool:
        """Return whether the caller is the one to answer `future`."""
        try:
            self._pending.remove(future)
        except KeyError:
            return False
        return True
