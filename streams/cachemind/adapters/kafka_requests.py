"""One partition of the topic of requests, owned by one process at a time.

Ownership is the transactional id of the partition: whoever begins with it last shuts
the others out, before they can commit anything more. So it does not matter for how
long a process believes that its group has given it the partition.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from cachemind.adapters.kafka_admin import KafkaAdmin, answer, repeated
from cachemind.adapters.kafka_batch import KafkaBatchWriter, TransactionLog
from cachemind.adapters.kafka_config import Properties, open_consumer
from cachemind.adapters.kafka_errors import kafka_error, log_error
from cachemind.adapters.kafka_groups import KafkaGroupOffsets
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.core.grant_topics import ReplyRule
from cachemind.core.topics import TopicSpec
from cachemind.errors import LogRejected, LogUnavailable
from cachemind.ports import Headers, LogRecord
from cachemind.ports.commands import DeadLetter, Outgoing
from cachemind.types import Lsn, Offset, Partition

DEADLINE_S: Final = 10.0
ANSWERS_READ: Final = 100_000
"""Offsets of the topic of answers that are read back; a marker a transaction too."""

SETTLE_POLL_S: Final = 0.05
KNOWN_S: Final = 60.0
"""For how long a topic that was there is taken to be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTopics:
    """What is read and written, and where answers may go.

    `kept_at` is the partition of the topic of answers, which other sessions may share.
    """

    requests: str
    answers: str
    kept_at: Partition
    wal: TopicSpec
    dlq: TopicSpec
    group: str
    replies: ReplyRule


class KafkaRequestSession:
    """`BatchSession` of one partition. Use it from one thread, `wal` from any."""

    def __init__(
        self, properties: Properties, topics: RequestTopics, partition: Partition
    ) -> None:
        """Contact no broker yet. Raises: `InvalidSetting`."""
        self._properties = properties
        self._topics = topics
        self._partition = partition
        largest = {"message.max.bytes": str(topics.dlq.max_message_bytes)}
        self._writer = _Writer(
            {**properties, **largest},
            topics.requests,
            f"{topics.requests}.{partition}",
            DEADLINE_S,
        )
        self._offsets = KafkaGroupOffsets(
            properties, topics.group, topics.requests, DEADLINE_S
        )
        # Never joins: Kafka takes offsets in a transaction from whoever owns the id.
        # It also asks where the records of the topic of answers end, committed or not.
        self._group = open_consumer(
            properties,
            {"group.id": topics.group, "isolation.level": "read_uncommitted"},
        )
        self._wal = TransactionLog(
            self._writer, topics.wal.name, topics.wal.max_message_bytes
        )
        self._seen: dict[str, float] = {}

    def take_over(self) -> Offset:
        """Shut out whoever owned it; return the offset of the next command."""
        self._wal.open = False
        self._writer.take_over()
        found = self._offsets.committed([self._partition])[self._partition]
        return Offset(0) if found is None else found

    def refuses(self, reply_to: str) -> str | None:
        """Return why no answer may go to that topic, None where it may."""
        refusal = self._topics.replies.refusal(reply_to)
        if refusal is not None:
            return refusal
        if time.monotonic() - self._seen.get(reply_to, -KNOWN_S) < KNOWN_S:
            return None
        if not _exists(self._properties, reply_to):
            return f"there is no topic {reply_to}"
        self._seen[reply_to] = time.monotonic()
        return None

    def append(self, key: bytes, value: bytes, headers: Headers) -> Lsn:
        """Return where an event is on the WAL, once committed."""
        return self._writer.append_to(self._topics.wal.name, key, value, headers)

    def answer(
        self, topic: str, key: bytes, value: bytes, headers: Headers, after: Offset
    ) -> None:
        """Commit an answer together with the next offset to read."""
        self._writer.append_to(topic, key, value, headers, self._moved(after))

    def bury(self, letter: DeadLetter, after: Offset) -> None:
        """Commit a dead letter together with the next offset to read."""
        self._writer.append_to(self._topics.dlq.name, *letter, self._moved(after))

    @property
    def wal(self) -> TransactionLog:
        """Return what appends to the WAL inside of the open transaction."""
        return self._wal

    def begin(self) -> None:
        """Open a transaction."""
        self._writer.begin()
        self._wal.open = True

    def serve(self, until: threading.Event) -> None:
        """Tell appends how they ended, until told to stop."""
        self._writer.serve(until)

    def commit(self, records: Sequence[Outgoing], after: Offset) -> None:
        """Commit what was appended, `records` and the next offset to read."""
        self._wal.open = False
        moved = self._moved(after)
        self._writer.commit_open(records, lambda _: self._writer.send(moved))

    def give_up(self) -> None:
        """Abort what is open; take over again before anything else."""
        self._wal.open = False
        self._writer.give_up()

    def answers(self) -> Iterator[LogRecord]:
        """Yield what was answered before: the newest `ANSWERS_READ`, in order.

        Raises: `LogUnavailable` while a transaction of another session there is open:
        what we have committed after it does not show yet.
        """
        reader = KafkaReader(
            self._properties, self._topics.answers, request_s=DEADLINE_S
        )
        kept_at = self._topics.kept_at
        with closing(reader):
            first, end = self._answers_end(reader)
            first = Offset(max(first, end - ANSWERS_READ))
            for batch in reader.read(kept_at, first, end):
                yield from batch

    def _answers_end(self, reader: KafkaReader) -> tuple[Offset, Offset]:
        """Return the bounds of what can be read, once that is all there is by now."""
        topic, kept_at = self._topics.answers, self._topics.kept_at
        where, until = TopicPartition(topic, kept_at), time.monotonic() + DEADLINE_S
        _, written = repeated(
            f"end of {topic}[{kept_at}]",
            DEADLINE_S,
            lambda limit_s: self._group.get_watermark_offsets(where, limit_s),
        )
        while (found := reader.bounds(kept_at))[1] < written:
            if time.monotonic() > until:
                raise LogUnavailable(
                    f"{topic}[{kept_at}]: a transaction of another holds back answers"
                )
            time.sleep(SETTLE_POLL_S)
        return found

    def close(self) -> None:
        """Leave the cluster; what is open is aborted."""
        if self._wal.open:
            self.give_up()
        self._writer.close()
        self._offsets.close()
        self._group.close()

    def _moved(self, after: Offset) -> _Moved:
        place = TopicPartition(self._topics.requests, self._partition, after)
        return _Moved(place, self._group.consumer_group_metadata())


@dataclass(frozen=True, slots=True)
class _Moved:
    """A group's offset, to be committed with a record."""

    place: TopicPartition
    group: object


class _Writer(KafkaBatchWriter):
    """Also one record a transaction, to any topic, with a group's offset or without."""

    def append_to(
        self,
        topic: str,
        key: bytes,
        value: bytes,
        headers: Headers,
        moved: _Moved | None = None,
    ) -> Lsn:
        """Return where the record is, once it is committed.

        Raises: `LogUnavailable`, `LogRejected`; then take over again.
        """
        self._topic = topic

        def with_offset() -> None:
            if moved is not None:
                self.send(moved)

        return self.append_all([(key, value, headers)], with_offset)[0]

    def send(self, moved: _Moved) -> None:
        """Add a group's offset to the open transaction."""
        producer = self._ready(time.monotonic())
        try:
            producer.send_offsets_to_transaction(
                [moved.place], moved.group, self._timeout_s
            )
        except KafkaException as error:
            raise log_error("commit an offset", kafka_error(error)) from error


def _exists(properties: Properties, topic: str) -> bool:
    """Return whether there is such a topic; asking does not make it."""

    def ask(client: AdminClient, limit_s: float) -> bool:
        found = client.describe_topics(
            TopicCollection([topic]), request_timeout=limit_s
        )
        try:
            return bool(answer(found[topic], limit_s).partitions)
        except KafkaException as error:
            if kafka_error(error).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            return False

    with closing(KafkaAdmin(properties, DEADLINE_S)) as admin:
        try:
            return admin.ask(f"find topic {topic}", ask)
        except LogRejected:
            # It may be there: to whoever may not see it, it is not.
            return False
