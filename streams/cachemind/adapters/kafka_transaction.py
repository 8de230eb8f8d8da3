"""Appends several records to Kafka, to one topic or to several: all of them, or none.

Readers of committed records see them only once the transaction has committed. What a
process leaves open when it dies is aborted by the next one with the same id, or by
the broker in time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from cachemind.adapters.kafka_config import Properties, open_transactional_producer
from cachemind.adapters.kafka_errors import kafka_error, log_error
from cachemind.errors import CacheError, LogError, LogTakenOver, LogUnavailable
from cachemind.ports import Headers
from cachemind.types import Lsn, Offset, Partition

_LOG: Final = logging.getLogger("cachemind.kafka")
_FENCED: Final = frozenset({KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH})

Record = tuple[bytes, bytes, Headers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A record and where it goes: to `partition` or, without one, by its key."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: Partition | None = None


def _no_objection() -> None:
    """Let the transaction commit."""


class KafkaTransactions:
    """One transaction after the other on one topic. Use it from one thread.

    `transactional_id` is one for all who must not do this at the same time: the
    newest one ends the others.
    """

    def __init__(
        self,
        properties: Properties,
        topic: str,
        transactional_id: str,
        timeout_s: float = 10.0,
        partition: Partition | None = None,
    ) -> None:
        """Contact no broker yet. Raises: `InvalidSetting`.

        Records go to `partition`; where it is None, by their key.
        """
        self._properties = dict(properties)
        self._topic = topic
        self._id = transactional_id
        self._timeout_s = timeout_s
        self._partition = partition
        self._producer: Producer | None = None

    def append_all(
        self,
        records: Sequence[Record],
        before_commit: Callable[[], None] = _no_objection,
    ) -> Sequence[Lsn]:
        """Return where each record is on the topic; see `commit`."""
        return self.commit(
            [
                Placed(
                    topic=self._topic,
                    key=key,
                    value=value,
                    headers=headers,
                    partition=self._partition,
                )
                for key, value, headers in records
            ],
            before_commit,
        )

    def commit(
        self,
        records: Sequence[Placed],
        before_commit: Callable[[], None] = _no_objection,
    ) -> Sequence[Lsn]:
        """Return where each record is, once all are committed.

        `before_commit` is called while they are on the log but not committed; what
        it raises takes them all away again and is raised.

        Raises: `LogRejected` and then none is on the log; `LogUnavailable`, and then
        none is or, where its message says so, that is not known.
        """
        return self._committed(partial(_hand_over, records), before_commit)

    def _committed(
        self,
        hand_over: Callable[[Producer], _Reports],
        before_commit: Callable[[], None],
    ) -> Sequence[Lsn]:
        until = time.monotonic() + self._timeout_s
        producer = self._ready(until)
        try:
            return _transact(producer, hand_over, until, before_commit)
        except CacheError:
            self._abort(producer)
            raise

    def close(self) -> None:
        """Leave the cluster; an open transaction is aborted."""
        producer, self._producer = self._producer, None
        if producer is not None:
            _close(producer)

    def _ready(self, until: float) -> Producer:
        if self._producer is None:
            producer = open_transactional_producer(self._properties, self._id, _noticed)
            try:
                until_done("begin", producer.init_transactions, until)
            except LogError:
                _close(producer)
                raise
            self._producer = producer
        return self._producer

    def _abort(self, producer: Producer) -> None:
        """End a failed transaction; the next one begins with a new producer.

        Its start settles what is still open on the broker.
        """
        self._producer = None
        try:
            producer.purge()
            producer.abort_transaction(self._timeout_s)
        except KafkaException as error:
            _LOG.warning("a transaction was left to the broker: %s", error)
        finally:
            _close(producer)


class KafkaSoleWriter(KafkaTransactions):
    """A `SoleWriter` on one partition; whoever took over last is the only one."""

    def take_over(self) -> None:
        """End every other writer of this id; what it has open is aborted.

        Raises: `LogUnavailable`, `LogRejected`.
        """
        self.close()
        super()._ready(time.monotonic() + self._timeout_s)

    def append_all(
        self,
        records: Sequence[Record],
        before_commit: Callable[[], None] = _no_objection,
    ) -> Sequence[Lsn]:
        """Return where each record is; see `commit`."""
        if self._partition is None:
            return super().append_all(records, before_commit)
        hand_over = partial(_hand_over_run, self._topic, self._partition, records)
        return self._committed(hand_over, before_commit)

    def _ready(self, until: float) -> Producer:
        # Never by itself: who begins anew must first look at what is there now.
        if self._producer is None:
            raise LogUnavailable("append: this writer has not taken over")
        return self._producer


def produce(
    producer: Producer,
    record: Placed,
    noted: Callable[[KafkaError | None, Message], None],
) -> None:
    """Hand a record to `producer`; `noted` is called once it is delivered, or not.

    Raises: `LogUnavailable`, `LogRejected`.
    """
    # -1 is Kafka's word for "by the key".
    partition = -1 if record.partition is None else int(record.partition)
    try:
        producer.produce(
            record.topic,
            record.value,
            record.key,
            partition,
            on_delivery=noted,
            headers=list(record.headers) or None,
        )
    except BufferError as error:
        raise LogUnavailable("append: the queue to Kafka is full") from error
    except KafkaException as error:
        raise translated("append", error) from error


class _Reports(Protocol):
    """What Kafka told of the records of one transaction."""

    def lsns(self) -> Sequence[Lsn]:
        """Return where each record is. Raises: `LogUnavailable`, `LogRejected`."""
        ...


class _Each:
    """Of records in any partition, by their number."""

    def __init__(self, topics: str, count: int) -> None:
        self._topics = topics
        self._count = count
        self._found: dict[int, Lsn] = {}
        self._failed: list[KafkaError] = []

    def note(self, number: int, error: KafkaError | None, message: Message) -> None:
        """Take a delivery report."""
        partition, offset = message.partition(), message.offset()
        if error is not None:
            self._failed.append(error)
        elif partition is not None and offset is not None and offset >= 0:
            self._found[number] = Lsn(Partition(partition), Offset(offset))

    def lsns(self) -> Sequence[Lsn]:
        """Return where each record is."""
        _demand_all(self._topics, self._failed, len(self._found), self._count)
        return [self._found[number] for number in range(self._count)]


class _Run:
    """Of records in one partition, which an idempotent producer keeps in order."""

    def __init__(self, topic: str, count: int) -> None:
        self._topic = topic
        self._count = count
        self._found: list[tuple[int | None, int | None]] = []
        self._failed: list[KafkaError] = []

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """Take a delivery report."""
        if error is not None:
            self._failed.append(error)
        else:
            self._found.append((message.partition(), message.offset()))

    def lsns(self) -> Sequence[Lsn]:
        """Return where each record is."""
        _demand_all(self._topic, self._failed, len(self._found), self._count)
        lsns = [Lsn(Partition(p or 0), Offset(at or 0)) for p, at in self._found]
        if any(one >= other for one, other in pairwise(lsns)):
            raise LogUnavailable("append: the reports came in another order")
        return lsns


def _demand_all(topics: str, failed: Sequence[KafkaError], found: int, of: int) -> None:
    if failed:
        raise log_error(f"append to {topics}", failed[0])
    if found != of:
        raise LogUnavailable("append: Kafka did not answer in time")


def _hand_over(records: Sequence[Placed], producer: Producer) -> _Each:
    reports = _Each(_named(records), len(records))
    for number, record in enumerate(records):
        produce(producer, record, partial(reports.note, number))
    return reports


def _hand_over_run(
    topic: str, partition: Partition, records: Sequence[Record], producer: Producer
) -> _Run:
    """Hand records of one partition over, without a value and a function for each."""
    run, append = _Run(topic, len(records)), producer.produce
    try:
        for key, value, headers in records:
            append(topic, value, key, partition, run, headers=list(headers) or None)
    except BufferError as error:
        raise LogUnavailable("append: the queue to Kafka is full") from error
    except KafkaException as error:
        raise translated("append", error) from error
    return run


def _transact(
    producer: Producer,
    hand_over: Callable[[Producer], _Reports],
    until: float,
    before_commit: Callable[[], None],
) -> Sequence[Lsn]:
    try:
        producer.begin_transaction()
    except KafkaException as error:
        raise translated("begin", error) from error
    reports = hand_over(producer)
    served(
        "append",
        lambda: producer.flush(max(until - time.monotonic(), 0.0)),
        lambda: producer.abort_transaction(max(until - time.monotonic(), 0.1)),
    )
    lsns = reports.lsns()
    before_commit()
    until_done("commit", producer.commit_transaction, until)
    return lsns


def _named(records: Sequence[Placed]) -> str:
    return ", ".join(sorted({record.topic for record in records}))


def _noticed(error: KafkaError) -> None:
    _LOG.info("transactions: %s", error.str())


def served(
    doing: str, step: Callable[[], object], ask: Callable[[], object] | None = None
) -> None:
    """Do what calls back. Raises: `LogUnavailable`, `LogRejected`.

    A fatal error is set by confluent-kafka while callbacks still run, which Python
    reports as a `SystemError` of the callback, sometimes with nothing behind it. Then
    `ask` is called: it has the producer, which does nothing more, say its error again.
    """
    try:
        step()
    except KafkaException as error:
        raise translated(doing, error) from error
    except SystemError as error:
        fact = _behind(error) or (_said(ask) if ask is not None else None)
        if fact is None:
            raise LogUnavailable(f"{doing}: the producer failed for good") from error
        raise translated(doing, fact) from error


def _behind(error: BaseException) -> KafkaException | None:
    fact: BaseException | None = error
    while fact is not None and not isinstance(fact, KafkaException):
        fact = fact.__cause__ or fact.__context__
    return fact


def _said(ask: Callable[[], object]) -> KafkaException | None:
    try:
        ask()
    except KafkaException as error:
        return error
    return None


def _close(producer: Producer) -> None:
    try:
        served("close", producer.close)
    except LogError as error:
        _LOG.warning("a producer ended badly: %s", error)


def until_done(doing: str, step: Callable[[float], object], until: float) -> None:
    """Do one step of a transaction, again while that may help and time is left.

    Raises: `LogUnavailable`, `LogRejected`.
    """
    while True:
        left_s = until - time.monotonic()
        try:
            step(max(left_s, 0.1))
        except KafkaException as error:
            fact = kafka_error(error)
            if not fact.retriable() or until - time.monotonic() <= 0:
                raise translated(doing, error) from error
        else:
            return


def translated(doing: str, error: KafkaException) -> LogError:
    """Return what went wrong with a step of a transaction, in our words."""
    fact = kafka_error(error)
    if fact.code() in _FENCED:
        return LogTakenOver(f"{doing}: another one has begun a transaction since")
    if doing == "commit" and fact.retriable():
        return LogUnavailable(f"commit: whether it is done is not known: {fact.str()}")
    return log_error(f"transaction, {doing}", fact)
