"""One request after another to a cluster's admin API, until it answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from cachemind.adapters.kafka_config import Properties, open_admin
from cachemind.adapters.kafka_errors import kafka_error, log_error
from cachemind.errors import LogError, LogRejected, LogUnavailable

DEADLINE_S: Final = 60.0

_REQUEST_S: Final = 5.0
_RETRY_PAUSE_S: Final = 0.25
_TIMED_OUT: Final = frozenset({KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE})
_T = TypeVar("_T")


class KafkaAdmin:
    """An admin client whose questions are repeated until answered.

    `deadline_s` bounds each question, all its attempts together.
    """

    def __init__(self, properties: Properties, deadline_s: float = DEADLINE_S) -> None:
        """Raises: `InvalidSetting`; contacts no broker yet."""
        self._connection_error: KafkaError | None = None
        self._client = open_admin(properties, self._note)
        self._deadline_s = deadline_s

    def ask(self, doing: str, question: Callable[[AdminClient, float], _T]) -> _T:
        """Return the answer to `question`, called with the client and a time limit.

        `doing` says what it is for, in the words of an error message.
        Units: the time limit is in seconds.
        Raises: `LogUnavailable` past the deadline; `LogRejected` at once.
        """
        return repeated(
            doing,
            self._deadline_s,
            lambda limit_s: self._attempt(doing, question, limit_s),
        )

    def close(self) -> None:
        """Leave the cluster."""
        self._client.__exit__(None, None, None)

    def _attempt(
        self, doing: str, question: Callable[[AdminClient, float], _T], limit_s: float
    ) -> _T:
        self._connection_error = None
        try:
            return question(self._client, limit_s)
        except KafkaException as error:
            # Before the poll librdkafka keeps its log lines and errors to itself.
            self._client.poll(0)
            raise self._problem(doing, kafka_error(error)) from error

    def _problem(self, doing: str, error: KafkaError) -> LogError:
        """Return what went wrong; the connection's error says more than a time-out."""
        if error.code() in _TIMED_OUT and self._connection_error is not None:
            return log_error(doing, self._connection_error)
        return log_error(doing, error)

    def _note(self, error: KafkaError) -> None:
        # That all brokers are down is told last and says least.
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._connection_error = error


def repeated(doing: str, deadline_s: float, question: Callable[[float], _T]) -> _T:
    """Return the answer to `question`, asked again until `deadline_s` is over.

    It is called with a time limit in seconds. `doing` says what it is for.
    Raises: `LogUnavailable` past the deadline; `LogRejected` at once.
    """
    deadline = time.monotonic() + deadline_s
    while True:
        left = deadline - time.monotonic()
        try:
            return question(max(_RETRY_PAUSE_S, min(_REQUEST_S, left)))
        except KafkaException as error:
            problem = log_error(doing, kafka_error(error))
            if isinstance(problem, LogRejected):
                raise problem from error
            if time.monotonic() + _RETRY_PAUSE_S >= deadline:
                raise problem from error
        except LogUnavailable:
            if time.monotonic() + _RETRY_PAUSE_S >= deadline:
                raise
        time.sleep(_RETRY_PAUSE_S)


def answer(future: Future[_T], limit_s: float) -> _T:
    """Return a future's result. librdkafka keeps the limit itself; this is the net.

    Raises: `KafkaException`, `LogUnavailable`.
    """
    try:
        return future.result(limit_s + _REQUEST_S)
    except TimeoutError as error:
        raise LogUnavailable("the admin client did not come back") from error
