"""Calls over Kafka that await."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from typing import TypeVar

from cachemind.client import asking
from cachemind.client.asking import Asked
from cachemind.client.async_stream import AsyncStream
from cachemind.client.errors import CallFailed, Unavailable
from cachemind.client.kafka_calls import KafkaAsk
from cachemind.client.kafka_link import KafkaLink, now_s, whole
from cachemind.client.receipts import Pages
from cachemind.client.repeating import Again, Patience
from cachemind.client.request_ids import new_request_id
from cachemind.client.results import Control
from cachemind.core.commands import Command, Reply
from cachemind.core.completion import JsonObject

T = TypeVar("T")


class AsyncKafka:
    """Sends commands, again under the same id where no answer comes.

    Use it on one event loop.
    """

    def __init__(self, link: KafkaLink, patience: Patience) -> None:
        self._link = link
        self._patience = patience

    async def ask(self, asked: Asked[T], timeout_s: float) -> T:
        """Return what the reply means; all attempts together take `timeout_s`.

        Raises: `CallFailed`.
        """
        return await self._ask(asked.kafka(), timeout_s)

    async def _ask(self, ask: KafkaAsk[T], timeout_s: float) -> T:
        command = Command(
            request_id=new_request_id(), namespace=self._link.namespace, body=ask.body
        )
        until, attempt = time.monotonic() + timeout_s, 0
        while True:
            left_s = until - time.monotonic()
            try:
                return ask.read(await self._reply(command, left_s, attempt))
            except CallFailed as error:
                # By its id it is done once however often it is sent.
                chance = random.random()  # noqa: S311 - only spreads the load
                pause_s = self._patience.pause_s(error, attempt, Again.ALWAYS, chance)
                if pause_s is None or time.monotonic() + pause_s >= until:
                    raise
                await asyncio.sleep(pause_s)
                attempt += 1

    async def stream(
        self, request: JsonObject, control: Control, timeout_s: float
    ) -> AsyncStream:
        """Return a completion in parts, once all of it is there: a reply is one record.

        Raises: `CallFailed`.
        """
        answer = await self.ask(asking.complete(request, control), timeout_s)
        reader, chunk = whole(answer)
        return AsyncStream(_one(chunk), _nothing, reader)

    async def receipts(self, pages: Pages, timeout_s: float) -> None:
        """Take in all pages. Raises: `CallFailed`."""
        began = time.monotonic()
        while (ask := pages.by_kafka(time.monotonic() - began)) is not None:
            page = await self._ask(ask, began + timeout_s - time.monotonic())
            pages.take(page, time.monotonic() - began)

    async def close(self) -> None:
        """Leave the cluster."""
        await asyncio.to_thread(self._link.close)

    async def _reply(self, command: Command, left_s: float, attempt: int) -> Reply:
        wait_s = self._patience.share_s(left_s, attempt)
        if self._link.is_open:
            correlation_id = self._link.correlation_id(left_s)
        else:
            correlation_id = await asyncio.to_thread(self._link.correlation_id, left_s)
        future = self._link.send(command, correlation_id, now_s() + left_s)
        try:
            async with asyncio.timeout(wait_s):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise Unavailable("no reply in time") from None
        finally:
            self._link.forget(correlation_id)


async def _one(chunk: bytes) -> AsyncIterator[bytes]:
    yield chunk


async def _nothing() -> None:
    """Close nothing."""
