"""The parts of a streamed completion, from its bytes. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from cachemind.client.errors import NoCache, StreamCut
from cachemind.client.http_answers import answer_of
from cachemind.client.results import Answer, Part
from cachemind.core.completion import DONE, CompletionAggregator, parse_object
from cachemind.core.completion_chunks import synthesise
from cachemind.core.sse import SseParser
from cachemind.errors import MalformedCompletion

EVENT_STREAM: Final = "text/event-stream"


class PartReader:
    """Turns the bytes of one answer into parts, and the parts into one answer."""

    def __init__(self, head: Answer, *, streams: bool) -> None:
        """`head` has no completion yet; `streams` where the bytes are an event stream.

        Some servers answer whole whatever they were asked for.
        """
        self.head = head
        self._streams = streams
        self._frames = SseParser()
        self._whole = bytearray()
        self._joined = CompletionAggregator()

    @classmethod
    def of_headers(cls, headers: Mapping[str, str]) -> PartReader:
        """Return a reader for an answer with these lower-case header fields.

        Raises: `NoCache`.
        """
        streams = headers.get("content-type", "").startswith(EVENT_STREAM)
        return cls(answer_of(headers, {}), streams=streams)

    def feed(self, chunk: bytes) -> Iterator[Part]:
        """Yield the parts that `chunk` completes. Raises: `StreamCut`."""
        if not self._streams:
            self._whole += chunk
            return
        for frame in self._frames.feed(chunk):
            if frame.event is not None and not self._joined.done:
                yield from self._part(frame.event.data)

    def end(self) -> Iterator[Part]:
        """Yield what is left once there are no more bytes. Raises: `StreamCut`."""
        if self._streams:
            if not self._joined.done:
                raise StreamCut("the stream ended before its last part")
            return
        try:
            chunks = list(
                synthesise(parse_object(bytes(self._whole)), include_usage=True)
            )
        except MalformedCompletion as error:
            raise NoCache(f"the answer is no completion: {error.reason}") from error
        for chunk in chunks:
            self._joined.add_chunk(chunk)
            yield Part(chunk=chunk)
        self._joined.add(DONE)

    def answer(self) -> Answer:
        """Return all parts as one answer. Raises: `StreamCut` before the end."""
        if not self._joined.done:
            raise StreamCut("the stream is not at its end")
        return replace(self.head, completion=self._joined.completion())

    def _part(self, data: str) -> Iterator[Part]:
        try:
            if data == DONE:
                self._joined.add(DONE)
                return
            chunk = parse_object(data)
            self._joined.add_chunk(chunk)
        except MalformedCompletion as error:
            raise StreamCut(f"the stream broke off: {error.reason}") from error
        yield Part(chunk=chunk)
