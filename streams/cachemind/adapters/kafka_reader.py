"""Reads a Kafka topic by position: whole ranges in bulk, or its live end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from cachemind.adapters.kafka_admin import repeated
from cachemind.adapters.kafka_config import Properties, open_consumer
from cachemind.adapters.kafka_errors import kafka_error, log_error
from cachemind.errors import LogUnavailable, OffsetOutOfRange
from cachemind.ports import Headers, LogRecord
from cachemind.types import Lsn, Offset, Partition

BATCH_RECORDS: Final = 5_000
STALL_S: Final = 30.0
REQUEST_S: Final = 10.0

_HeaderValue = str | bytes | None
_Found = Mapping[str, _HeaderValue] | Sequence[tuple[str, _HeaderValue]]
_POLL_S: Final = 0.1
_TAIL_WAIT_MS: Final = 500
# What librdkafka reports while it goes on trying by itself.
_PASSING: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._AUTHENTICATION,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)


class KafkaReader:
    """A `LogReader` on librdkafka. Each read has a connection of its own.

    `stall_s` is how long a read waits without any progress, and `request_s` how
    long a question about bounds may take, before the log counts as unavailable.
    """

    def __init__(
        self,
        properties: Properties,
        topic: str,
        *,
        stall_s: float = STALL_S,
        request_s: float = REQUEST_S,
    ) -> None:
        """Raises: `InvalidSetting`; contacts no broker yet."""
        self._properties = dict(properties)
        self._topic = topic
        self._stall_s = stall_s
        self._request_s = request_s
        self._asking = open_consumer(self._properties)
        self._polling = threading.Lock()

    def bounds(self, partition: Partition) -> tuple[Offset, Offset]:
        """Return (first readable offset, offset after the last committed record)."""
        where = TopicPartition(self._topic, partition)
        # Repeated: right after a topic's creation or a broker's restart nobody
        # leads the partition for a moment.
        low, high = repeated(
            f"bounds of {self._topic}[{partition}]",
            self._request_s,
            lambda limit_s: self._watermarks(where, limit_s),
        )
        return Offset(low), Offset(high)

    def first_after(self, partition: Partition, time_ms: int) -> Offset:
        """Return where the records after `time_ms` begin, by Kafka's own timestamps.

        The end where none is. Units: milliseconds since the Unix epoch (UTC).
        Raises: `LogUnavailable`.
        """
        asked = TopicPartition(self._topic, partition, time_ms + 1)
        self._hand_on_log_lines()
        try:
            (found,) = self._asking.offsets_for_times([asked], self._request_s)
        except KafkaException as error:
            raise log_error(
                f"offsets by time of {self._topic}[{partition}]", self._explain(error)
            ) from error
        return Offset(found.offset) if found.offset >= 0 else self.bounds(partition)[1]

    def read(
        self, partition: Partition, start: Offset, end: Offset
    ) -> Iterable[Sequence[LogRecord]]:
        """Yield batches with every committed record in [start, end), in order.

        Raises: `OffsetOutOfRange` where the log does not reach from `start`, and
        `LogUnavailable` where nothing came for `stall_s`.
        """
        if start >= end:
            return
        consumer = open_consumer(self._properties)
        try:
            consumer.assign([TopicPartition(self._topic, partition, start)])
            yield from self._range(consumer, partition, start, end)
        finally:
            consumer.close()

    def follow(
        self, starts: Mapping[Partition, Offset], should_stop: Callable[[], bool]
    ) -> Iterator[Sequence[LogRecord]]:
        """Yield what is and will be on the partitions from `starts` on, until told.

        Waits out an outage. An empty batch is yielded when nothing came for a
        moment, so that the caller can do something else.
        Raises: `OffsetOutOfRange`, `LogRejected`.
        """
        consumer = open_consumer(self._properties, {"fetch.wait.max.ms": _TAIL_WAIT_MS})
        try:
            consumer.assign(
                [TopicPartition(self._topic, p, at) for p, at in starts.items()]
            )
            while not should_stop():
                yield self._digest(_take(consumer), 0)[0]
        finally:
            consumer.close()

    def close(self) -> None:
        """Leave the log. A read under way ends by itself."""
        self._asking.close()

    def _watermarks(self, where: TopicPartition, limit_s: float) -> tuple[int, int]:
        self._hand_on_log_lines()
        try:
            # The upper one is the last stable offset, since we read committed.
            low, high = self._asking.get_watermark_offsets(where, limit_s)
        except KafkaException as error:
            raise KafkaException(self._explain(error)) from error
        return low, high

    def _explain(self, error: KafkaException) -> KafkaError:
        """Return the cause; for a partition that is not known, the topic's."""
        fact = kafka_error(error)
        if fact.code() != KafkaError._UNKNOWN_PARTITION:
            return fact
        try:
            found = self._asking.list_topics(self._topic, self._request_s)
        except KafkaException as unanswered:
            return kafka_error(unanswered)
        return found.topics[self._topic].error or fact

    def _hand_on_log_lines(self) -> None:
        """Let librdkafka log what it kept back: else it keeps more and more of it."""
        if self._polling.acquire(blocking=False):
            try:
                self._asking.poll(0)
            finally:
                self._polling.release()

    def _range(
        self, consumer: Consumer, partition: Partition, start: Offset, end: Offset
    ) -> Iterator[Sequence[LogRecord]]:
        reached = int(start)
        deadline = time.monotonic() + self._stall_s
        while reached < end:
            records, position = self._digest(_take(consumer), reached)
            if position > reached:
                reached, deadline = position, time.monotonic() + self._stall_s
            elif time.monotonic() > deadline:
                raise LogUnavailable(
                    f"{self._topic}[{partition}]: nothing after {reached} "
                    f"for {self._stall_s:g} s, expected up to {end}"
                )
            while records and records[-1].lsn.offset >= end:
                records.pop()
            if records:
                yield records
                # However long the caller took is no stall of the log's.
                deadline = time.monotonic() + self._stall_s

    def _digest(
        self, messages: Iterable[Message], reached: int
    ) -> tuple[list[LogRecord], int]:
        """Return the records among `messages` and the position after all of them.

        The position counts what carries no record: the end of a partition, which
        librdkafka reports with its offset, is past any control records before it.
        """
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(_record(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                reached = max(reached, message.offset() or 0)
            else:
                self._raise_unless_passing(error, message)
        if records:
            reached = max(reached, records[-1].lsn.offset + 1)
        return records, reached

    def _raise_unless_passing(self, error: KafkaError, message: Message) -> None:
        if error.code() in _PASSING:
            return
        partition = Partition(message.partition() or 0)
        if error.code() in (
            KafkaError._AUTO_OFFSET_RESET,
            KafkaError.OFFSET_OUT_OF_RANGE,
        ):
            first, end = self.bounds(partition)
            raise OffsetOutOfRange(
                f"{self._topic}[{partition}]", message.offset() or 0, first, end
            )
        raise log_error(f"read {self._topic}[{partition}]", error)


def _take(consumer: Consumer) -> list[Message]:
    """Return what is here; wait for the first message only, not for a full batch."""
    try:
        first = consumer.poll(_POLL_S)
        if first is None:
            return []
        return [first, *consumer.consume(BATCH_RECORDS - 1, 0)]
    except KafkaException as error:
        raise log_error("read", kafka_error(error)) from error


def _record(message: Message) -> LogRecord:
    partition, offset = message.partition(), message.offset()
    headers = message.headers()
    return LogRecord(
        lsn=Lsn(Partition(partition or 0), Offset(offset or 0)),
        key=message.key(),
        value=message.value(),
        headers=_headers(headers) if headers else (),
        timestamp_ms=message.timestamp()[1],
    )


def _headers(found: _Found) -> Headers:
    pairs = found.items() if isinstance(found, Mapping) else found
    return tuple((name, _plain(value)) for name, value in pairs)


def _plain(value: _HeaderValue) -> bytes:
    """Return a header's value; Kafka allows one without, and str only going in."""
    return value.encode() if isinstance(value, str) else value or b""
