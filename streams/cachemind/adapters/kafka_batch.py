"""One Kafka transaction that is appended to while it is open, from another thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from cachemind.adapters.kafka_errors import log_error
from cachemind.adapters.kafka_transaction import (
    KafkaSoleWriter,
    Placed,
    produce,
    served,
    translated,
    until_done,
)
from cachemind.errors import CacheError, LogError, LogRejected, LogUnavailable
from cachemind.ports import Headers
from cachemind.ports.commands import Outgoing, Undeliverable
from cachemind.types import Lsn, Offset, Partition

POLL_S: Final = 0.001
ABORT_S: Final = 1.0
HEADROOM_BYTES: Final = 16 * 1024
"""What a topic's limit leaves for headers and the batch around a record."""


class KafkaBatchWriter(KafkaSoleWriter):
    """A sole writer whose transaction stays open while events are decided.

    `append` may be called from any thread, the rest from the writer's own.
    """

    def begin(self) -> None:
        """Open a transaction. Raises: `LogUnavailable`, `LogRejected`."""
        producer = self._ready(time.monotonic())
        try:
            producer.begin_transaction()
        except KafkaException as error:
            raise translated("begin", error) from error

    def append_open(
        self, topic: str, key: bytes, value: bytes, headers: Headers
    ) -> Future[Lsn]:
        """Return a future of where the record is; committed with the rest.

        It ends while `serve` runs.
        """
        future: Future[Lsn] = Future()
        future.set_running_or_notify_cancel()
        record = Placed(topic=topic, key=key, value=value, headers=headers)
        try:
            produce(self._ready(time.monotonic()), record, partial(_ended, future))
        except LogError as error:
            future.set_exception(error)
        return future

    def serve(self, until: threading.Event) -> None:
        """Tell appends how they ended, until told to stop.

        Raises: `LogUnavailable`, `LogRejected` once the producer has failed for good.
        """
        producer = self._ready(time.monotonic())
        poll, ask = partial(producer.poll, POLL_S), _aborting(producer)
        while not until.is_set():
            served("append", poll, ask)

    def commit_open(
        self, records: Sequence[Outgoing], send_offsets: Callable[[Producer], None]
    ) -> None:
        """Commit the open transaction with `records` and what `send_offsets` sends.

        Raises: `Undeliverable`, `LogUnavailable`, `LogRejected`.
        """
        until = time.monotonic() + self._timeout_s
        producer = self._ready(until)
        failed: list[tuple[int, KafkaError]] = []
        left = [len(records)]
        for number, record in enumerate(records):
            placed = Placed(
                topic=record.topic,
                key=record.key,
                value=record.value,
                headers=record.headers,
                partition=record.partition,
            )
            try:
                produce(producer, placed, partial(_note, failed, left, number))
            except LogRejected as error:
                raise Undeliverable(number, str(error)) from error
        flush = partial(producer.flush, max(until - time.monotonic(), 0.0))
        served("append", flush, _aborting(producer))
        self._require_delivered(records, failed, left[0])
        send_offsets(producer)
        until_done("commit", producer.commit_transaction, until)

    def give_up(self) -> None:
        """Abort what is open; take over again before anything else."""
        producer = self._producer
        if producer is not None:
            self._abort(producer)

    def _require_delivered(
        self,
        records: Sequence[Outgoing],
        failed: Sequence[tuple[int, KafkaError]],
        left: int,
    ) -> None:
        # What is fine by itself is purged where another one of the batch is refused.
        for number, error in failed:
            topic = records[number].topic
            found: CacheError = log_error(f"append to {topic}", error)
            if isinstance(found, LogRejected) and error.code() not in _PURGED:
                raise Undeliverable(number, str(found))
        if failed:
            number, error = failed[0]
            raise log_error(f"append to {records[number].topic}", error)
        if left > 0:
            raise LogUnavailable("append: Kafka did not answer in time")


def _aborting(producer: Producer) -> Callable[[], object]:
    return partial(producer.abort_transaction, ABORT_S)


_PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


class TransactionLog:
    """A `LogWriter` on the WAL, inside of the transaction that is open."""

    def __init__(self, writer: KafkaBatchWriter, topic: str, most_bytes: int) -> None:
        """`most_bytes` is what the topic takes: more would end the transaction."""
        self._writer = writer
        self._topic = topic
        self._most_bytes = most_bytes - HEADROOM_BYTES
        self.open = False

    def append(self, key: bytes, value: bytes, headers: Headers) -> Future[Lsn]:
        """Return a future of where the event is; see `BatchSession.wal`."""
        if self.open and len(key) + len(value) <= self._most_bytes:
            return self._writer.append_open(self._topic, key, value, headers)
        refused: Future[Lsn] = Future()
        if self.open:
            size = len(key) + len(value)
            refused.set_exception(LogRejected(f"append: {size} bytes are too many"))
        else:
            refused.set_exception(LogUnavailable("append: no transaction is open"))
        return refused

    def close(self, timeout_s: float) -> int:
        """Return 0: what was appended is the transaction's."""
        del timeout_s
        return 0


def _note(
    failed: list[tuple[int, KafkaError]],
    left: list[int],
    number: int,
    error: KafkaError | None,
    _message: Message,
) -> None:
    left[0] -= 1
    if error is not None:
        failed.append((number, error))


def _ended(future: Future[Lsn], error: KafkaError | None, message: Message) -> None:
    partition, offset = message.partition(), message.offset()
    if error is not None:
        future.set_exception(log_error("append", error))
    elif partition is None or offset is None or offset < 0:
        future.set_exception(LogUnavailable("append: Kafka did not say where"))
    else:
        future.set_result(Lsn(Partition(partition), Offset(offset)))
