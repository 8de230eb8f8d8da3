"""One request after another to a cluster's admin API, until it answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from cachemind.adapters.kafka_config import Properties, open_admin
from cachemind.adapters.kafka_errors import kafka_error, log_error
from cachemind.errors import LogRejected, LogUnavailable

DEADLINE_S: Final = 60.0

_REQUEST_S: Final = 5.0
_RETRY_PAUSE_S: Final = 0.25
_T = TypeVar("_T")


class KafkaAdmin:
    """An admin client whose questions are repeated until answered.

    `deadline_s` bounds each question, all its attempts together.
    """

    def __init__(self, properties: Properties, deadline_s: float = DEADLINE_S) -> None:
        """Raises: `InvalidSetting`; contacts no broker yet."""
        self._client = open_admin(properties)
        self._deadline_s = deadline_s

    def ask(self, doing: str, question: Callable[[AdminClient, float], _T]) -> _T:
        """Return the answer to `question`, called with the client and a time limit.

        `doing` says what it is for, in the words of an error message.
        Units: the time limit is in seconds.
        Raises: `LogUnavailable` past the deadline; `LogRejected` at once.
        """

        def once(limit_s: float) -> _T:
            try:
                return question(self._client, limit_s)
            finally:
                self._client.poll(0)  # hands librdkafka's log lines on

        return repeated(doing, self._deadline_s, once)

    def close(self) -> None:
        """Leave the cluster."""
        self._client.__exit__(None, None, None)


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
