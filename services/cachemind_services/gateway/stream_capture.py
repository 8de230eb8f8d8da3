"""Reads a stream of chunks while it is passed on."""

from __future__ import annotations

from typing import Final

from cachemind.core.completion import (
    DONE,
    STREAM_ERROR,
    CompletionAggregator,
    JsonObject,
    parse_object,
)
from cachemind.core.sse import SseEvent, SseFrame, SseParser
from cachemind.errors import MalformedCompletion

_ERROR_EVENT: Final = "error"


class StreamCapture:
    """Joins what passes; `problem` says why it cannot be stored, "" while it can.

    `[DONE]` and what follows is held back, since a client takes it as the end.
    """

    def __init__(self, limit_bytes: int, *, usage_added: bool) -> None:
        self._limit_bytes = limit_bytes
        self._usage_added = usage_added
        self._parser = SseParser()
        self._aggregator = CompletionAggregator()
        self._size = 0
        self._raw = False
        self._held = bytearray()
        self.problem = ""

    def feed(self, chunk: bytes) -> bytes:
        """Return what may go on to the clients.

        That is all but the usage chunk that only our own wish brought.
        """
        if self._raw:
            return chunk
        self._size += len(chunk)
        if self._size > self._limit_bytes:
            self._spoil("too-large")
        passed: list[bytes] = []
        for frame in self._parser.feed(chunk):
            if self._holds(frame):
                self._held += frame.raw
            elif not self._absorb(frame.event):
                passed.append(frame.raw)
        if len(self._parser.rest()) > self._limit_bytes:
            # One event larger than all that may be kept: stop looking for its end.
            self._raw = True
            passed += [bytes(self._held), self._parser.rest()]
            self._held.clear()
        return b"".join(passed)

    def end(self) -> bytes:
        """Return what was held back, once the stream has ended."""
        if not self._aggregator.complete:
            self._spoil("stream-cut")
        return b"" if self._raw else bytes(self._held) + self._parser.rest()

    def completion(self) -> JsonObject:
        """Return the joined completion."""
        return self._aggregator.completion()

    def _holds(self, frame: SseFrame) -> bool:
        if self._held:
            return True
        if frame.event is None or frame.event.data != DONE:
            return False
        self._aggregator.done = True
        return True

    def _absorb(self, event: SseEvent | None) -> bool:
        """Take one event; return whether only our own wish brought it."""
        if event is None:
            return False
        if event.event == _ERROR_EVENT:
            self._spoil("stream-error")
            return False
        try:
            chunk = parse_object(event.data)
            if not self.problem:
                self._aggregator.add_chunk(chunk)
        except MalformedCompletion as error:
            self._spoil("stream-error" if error.reason == STREAM_ERROR else "malformed")
            return False
        only_usage = not chunk.get("choices") and chunk.get("usage") is not None
        return self._usage_added and only_usage

    def _spoil(self, problem: str) -> None:
        if not self.problem:
            self.problem = problem
            self._aggregator = CompletionAggregator()
