"""Calls over Kafka that block."""

from __future__ import annotations

import random
import time
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeVar

from cachemind.client import asking
from cachemind.client.asking import Asked
from cachemind.client.errors import CallFailed, Unavailable
from cachemind.client.kafka_calls import KafkaAsk
from cachemind.client.kafka_link import KafkaLink, now_s, whole
from cachemind.client.receipts import Pages
from cachemind.client.repeating import Again, Patience
from cachemind.client.request_ids import new_request_id
from cachemind.client.results import Control
from cachemind.client.sync_stream import Stream
from cachemind.core.commands import Command, Reply
from cachemind.core.completion import JsonObject

T = TypeVar("T")


class SyncKafka:
    """Sends commands, again under the same id where no answer comes.

    Safe to use from many threads.
    """

    def __init__(self, link: KafkaLink, patience: Patience) -> None:
        self._link = link
        self._patience = patience

    def ask(self, asked: Asked[T], timeout_s: float) -> T:
        """Return what the reply means; all attempts together take `timeout_s`.

        Raises: `CallFailed`.
        """
        return self._ask(asked.kafka(), timeout_s)

    def _ask(self, ask: KafkaAsk[T], timeout_s: float) -> T:
        command = Command(
            request_id=new_request_id(), namespace=self._link.namespace, body=ask.body
        )
        until, attempt = time.monotonic() + timeout_s, 0
        while True:
            left_s = until - time.monotonic()
            try:
                return ask.read(self._reply(command, left_s, attempt))
            except CallFailed as error:
                # By its id it is done once however often it is sent.
                chance = random.random()  # noqa: S311 - only spreads the load
                pause_s = self._patience.pause_s(error, attempt, Again.ALWAYS, chance)
                if pause_s is None or time.monotonic() + pause_s >= until:
                    raise
                time.sleep(pause_s)
                attempt += 1

    def stream(self, request: JsonObject, control: Control, timeout_s: float) -> Stream:
        """Return a completion in parts, once all of it is there: a reply is one record.

        Raises: `CallFailed`.
        """
        answer = self.ask(asking.complete(request, control), timeout_s)
        reader, chunk = whole(answer)
        return Stream([chunk], lambda: None, reader)

    def receipts(self, pages: Pages, timeout_s: float) -> None:
        """Take in all pages. Raises: `CallFailed`."""
        began = time.monotonic()
        while (ask := pages.by_kafka(time.monotonic() - began)) is not None:
            page = self._ask(ask, began + timeout_s - time.monotonic())
            pages.take(page, time.monotonic() - began)

    def close(self) -> None:
        """Leave the cluster."""
        self._link.close()

    def _reply(self, command: Command, left_s: float, attempt: int) -> Reply:
        wait_s = self._patience.share_s(left_s, attempt)
        correlation_id = self._link.correlation_id(left_s)
        future = self._link.send(command, correlation_id, now_s() + left_s)
        try:
            return future.result(max(wait_s, 0.0))
        except FutureTimeoutError:
            self._link.forget(correlation_id)
            raise Unavailable("no reply in time") from None
