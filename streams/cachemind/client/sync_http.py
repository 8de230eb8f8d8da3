"""Calls over HTTP that block."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from typing import TypeVar

import httpx

from cachemind.client import http_calls
from cachemind.client.asking import Asked
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
from cachemind.client.sync_stream import Stream
from cachemind.core.completion import JsonObject

T = TypeVar("T")


class SyncHttp:
    """Makes calls, again where that may help. Safe to use from many threads."""

    def __init__(
        self, base: str, headers: Mapping[str, str], patience: Patience
    ) -> None:
        self._base = base
        self._client = httpx.Client(headers=dict(headers), follow_redirects=False)
        self._patience = patience

    def ask(self, asked: Asked[T], timeout_s: float) -> T:
        """Return what the answer means; all attempts together take `timeout_s`.

        Raises: `CallFailed`.
        """
        return self._ask(asked.http(new_request_id(), timeout_s), timeout_s)

    def receipts(self, pages: Pages, timeout_s: float) -> None:
        """Take in all pages. Raises: `CallFailed`."""
        until = time.monotonic() + timeout_s
        while (ask := pages.by_http()) is not None:
            pages.take(self._ask(ask, until - time.monotonic()))

    def _ask(self, ask: Ask[T], timeout_s: float) -> T:
        until, attempt = time.monotonic() + timeout_s, 0
        while True:
            try:
                return ask.read(self._answer(ask.call, until))
            except CallFailed as error:
                self._pause(error, attempt, ask.again, until)
                attempt += 1

    def stream(self, request: JsonObject, control: Control, timeout_s: float) -> Stream:
        """Return the stream once it has begun; each wait takes at most `timeout_s`.

        Raises: `CallFailed`.
        """
        call = http_calls.stream(request, control)
        until, attempt = time.monotonic() + timeout_s, 0
        while True:
            try:
                return self._stream(call, timeout_s)
            except CallFailed as error:
                self._pause(error, attempt, Again.UNSTARTED, until)
                attempt += 1

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def _pause(
        self, failed: CallFailed, attempt: int, again: Again, until: float
    ) -> None:
        chance = random.random()  # noqa: S311 - only spreads the load
        pause_s = self._patience.pause_s(failed, attempt, again, chance)
        if pause_s is None or time.monotonic() + pause_s >= until:
            raise failed
        time.sleep(pause_s)

    def _stream(self, call: HttpCall, timeout_s: float) -> Stream:
        response = self._begun(call, timeout_s)
        try:
            if response.status_code != httpx.codes.OK:
                raise problem(answer_of_response(response, response.read()))
            reader = PartReader.of_headers(fields_of(response))
            return Stream(_chunks(response), response.close, reader)
        except httpx.HTTPError as error:
            response.close()
            raise failure_of(error) from error
        except CallFailed:
            response.close()
            raise

    def _answer(self, call: HttpCall, until: float) -> HttpAnswer:
        response = self._begun(call, max(until - time.monotonic(), 0.001))
        body = bytearray()
        try:
            for chunk in response.iter_bytes():
                body += chunk
                if time.monotonic() > until:
                    raise Unavailable("the answer did not end in time")
        except httpx.HTTPError as error:
            raise failure_of(error) from error
        finally:
            response.close()
        return answer_of_response(response, bytes(body))

    def _begun(self, call: HttpCall, timeout_s: float) -> httpx.Response:
        if self._client.is_closed:
            raise closed()
        request = build(self._client, self._base, call, timeout_s)
        try:
            return self._client.send(request, stream=True)
        except httpx.HTTPError as error:
            raise failure_of(error) from error


def _chunks(response: httpx.Response) -> Iterator[bytes]:
    try:
        yield from response.iter_bytes()
    except httpx.HTTPError as error:
        raise failure_of(error) from error
