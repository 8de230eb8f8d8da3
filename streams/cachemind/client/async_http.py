"""Calls over HTTP that await."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from typing import TypeVar

import httpx

from cachemind.client import http_calls
from cachemind.client.asking import Asked
from cachemind.client.async_stream import AsyncStream
from cachemind.client.errors import CallFailed, Unavailable
from cachemind.client.http_answers import HttpAnswer, problem
from cachemind.client.http_calls import Ask, HttpCall
from cachemind.client.http_messages import (
    answer_of_response,
    build,
    closed,
    failure_of,
    fields_of,
)
from cachemind.client.parts import PartReader
from cachemind.client.receipts import Pages
from cachemind.client.repeating import Again, Patience
from cachemind.client.request_ids import new_request_id
from cachemind.client.results import Control
from cachemind.core.completion import JsonObject

T = TypeVar("T")


class AsyncHttp:
    """Makes calls, again where that may help. Use it on one event loop."""

    def __init__(
        self, base: str, headers: Mapping[str, str], patience: Patience
    ) -> None:
        self._base = base
        self._client = httpx.AsyncClient(headers=dict(headers), follow_redirects=False)
        self._patience = patience

    async def ask(self, asked: Asked[T], timeout_s: float) -> T:
        """Return what the answer means; all attempts together take `timeout_s`.

        Raises: `CallFailed`.
        """
        return await self._ask(asked.http(new_request_id(), timeout_s), timeout_s)

    async def receipts(self, pages: Pages, timeout_s: float) -> None:
        """Take in all pages. Raises: `CallFailed`."""
        until = time.monotonic() + timeout_s
        while (ask := pages.by_http()) is not None:
            pages.take(await self._ask(ask, until - time.monotonic()))

    async def _ask(self, ask: Ask[T], timeout_s: float) -> T:
        until, attempt = time.monotonic() + timeout_s, 0
        while True:
            try:
                return ask.read(await self._answer(ask.call, until))
            except CallFailed as error:
                await self._pause(error, attempt, ask.again, until)
                attempt += 1

    async def stream(
        self, request: JsonObject, control: Control, timeout_s: float
    ) -> AsyncStream:
        """Return the stream once it has begun; each wait takes at most `timeout_s`.

        Raises: `CallFailed`.
        """
        call = http_calls.stream(request, control)
        until, attempt = time.monotonic() + timeout_s, 0
        while True:
            try:
                return await self._stream(call, timeout_s)
            except CallFailed as error:
                await self._pause(error, attempt, Again.UNSTARTED, until)
                attempt += 1

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _pause(
        self, failed: CallFailed, attempt: int, again: Again, until: float
    ) -> None:
        chance = random.random()  # noqa: S311 - only spreads the load
        pause_s = self._patience.pause_s(failed, attempt, again, chance)
        if pause_s is None or time.monotonic() + pause_s >= until:
            raise failed
        await asyncio.sleep(pause_s)

    async def _stream(self, call: HttpCall, timeout_s: float) -> AsyncStream:
        response = await self._begun(call, timeout_s)
        try:
            if response.status_code != httpx.codes.OK:
                raise problem(answer_of_response(response, await response.aread()))
            reader = PartReader.of_headers(fields_of(response))
            return AsyncStream(_chunks(response), response.aclose, reader)
        except httpx.HTTPError as error:
            await response.aclose()
            raise failure_of(error) from error
        except CallFailed:
            await response.aclose()
            raise

    async def _answer(self, call: HttpCall, until: float) -> HttpAnswer:
        left_s = max(until - time.monotonic(), 0.001)
        try:
            async with asyncio.timeout(left_s):
                response = await self._begun(call, left_s)
                try:
                    return answer_of_response(response, await response.aread())
                finally:
                    await response.aclose()
        except TimeoutError:
            raise Unavailable("the answer did not end in time") from None
        except httpx.HTTPError as error:
            raise failure_of(error) from error

    async def _begun(self, call: HttpCall, timeout_s: float) -> httpx.Response:
        if self._client.is_closed:
            raise closed()
        request = build(self._client, self._base, call, timeout_s)
        try:
            return await self._client.send(request, stream=True)
        except httpx.HTTPError as error:
            raise failure_of(error) from error


async def _chunks(response: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.aiter_bytes():
            yield chunk
    except httpx.HTTPError as error:
        raise failure_of(error) from error
