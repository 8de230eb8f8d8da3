"""A completion in parts, by iteration that blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType

from cachemind.client.parts import PartReader
from cachemind.client.results import Answer, Part


class Stream:
    """A completion as it comes: iterate over it once, and close it.

    `head` says what the cache did, before the first part. Raises while it is iterated
    over: `StreamCut`, `Unavailable`.
    """

    def __init__(
        self, chunks: Iterable[bytes], close: Callable[[], None], reader: PartReader
    ) -> None:
        self._chunks = chunks
        self._close = close
        self._reader = reader
        self.head: Answer = reader.head

    def __iter__(self) -> Iterator[Part]:
        for chunk in self._chunks:
            yield from self._reader.feed(chunk)
        yield from self._reader.end()

    def answer(self) -> Answer:
        """Return all parts as one answer. Raises: `StreamCut` before the end."""
        return self._reader.answer()

    def close(self) -> None:
        """Give the connection back; what did not come yet is not waited for."""
        self._close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
