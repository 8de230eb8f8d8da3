"""Calls over HTTP that block."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TypeVar

import httpx

from cachemind.client.errors import CallFailed, Unavailable
from cachemind.client.http_answers import HttpAnswer, problem
from cachemind.client.http_calls import Ask, HttpCall
from cachemind.client.http_messages import (
    answer_of_response,
    build,
    failure_of,
    fields_of,
)
from cachemind.client.parts import PartReader
from cachemind.client.repeating import Again, Patience
from cachemind.client.results import Answer, Part

T = TypeVar("T")


class Stream:
    """A completion as it comes: iterate over it once, and close it.

    `head` says what the cache did, before the first part. Raises while it is iterated
    over: `StreamCut`, `Unavailable`.
    """

    def __init__(self, response: httpx.Response, reader: PartReader) -> None:
        self._response = response
        self._reader = reader
        self.head: Answer = reader.head

    def __iter__(self) -> Iterator[Part]:
        try:
            for chunk in self._response.iter_bytes():
                yield from self._reader.feed(chunk)
        except httpx.HTTPError as error:
            raise failure_of(error) from error
        yield from self._reader.end()

    def answer(self) -> Answer:
        """Return all parts as one answer. Raises: `StreamCut` before the end."""
        return self._reader.answer()

    def close(self) -> None:
        """Give the connection back; what did not come yet is not waited for."""
        self._response.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class SyncHttp:
    """Makes calls, again where that may help. Safe to use from many threads."""

    def __init__(
        self, base: str, headers: Mapping[str, str], patience: Patience
    ) -> None:
        self._base = base
        self._client = httpx.Client(headers=dict(headers), follow_redirects=False)
        self._patience = patience

    def ask(self, ask: Ask[T], timeout_s: float) -> T:
        """Return what the answer means; all attempts together take `timeout_s`.

        Raises: `CallFailed`.
        """
        until, attempt = time.monotonic() + timeout_s, 0
        while True:
            try:
                return ask.read(self._answer(ask.call, until))
            except CallFailed as error:
                self._pause(error, attempt, ask.again, until)
                attempt += 1

    def stream(self, call: HttpCall, timeout_s: float) -> Stream:
        """Return the stream once it has begun; each wait takes at most `timeout_s`.

        Raises: `CallFailed`.
        """
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
            return Stream(response, PartReader(fields_of(response)))
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
        request = build(self._client, self._base, call, timeout_s)
        try:
            return self._client.send(request, stream=True)
        except httpx.HTTPError as error:
            raise failure_of(error) from error
