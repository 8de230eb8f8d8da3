"""A completion in parts, by iteration that awaits."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from types import TracebackType

from cachemind.client.parts import PartReader
from cachemind.client.results import Answer, Part


class AsyncStream:
    """A completion as it comes: iterate over it once, and close it.

    `head` says what the cache did, before the first part. Raises while it is iterated
    over: `StreamCut`, `Unavailable`.
    """

    def __init__(
        self,
        chunks: AsyncIterable[bytes],
        close: Callable[[], Awaitable[None]],
        reader: PartReader,
    ) -> None:
        self._chunks = chunks
        self._close = close
        self._reader = reader
        self.head: Answer = reader.head

    async def __aiter__(self) -> AsyncIterator[Part]:
        async for chunk in self._chunks:
            for part in self._reader.feed(chunk):
                yield part
        for part in self._reader.end():
            yield part

    def answer(self) -> Answer:
        """Return all parts as one answer. Raises: `StreamCut` before the end."""
        return self._reader.answer()

    async def close(self) -> None:
        """Give the connection back; what did not come yet is not waited for."""
        await self._close()

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
