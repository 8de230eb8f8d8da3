"""The two clients as one, so that a test asks both the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from cachemind.client import (
    Answer,
    AsyncCacheMind,
    CacheMind,
    Part,
    PutResult,
    Receipts,
    RollbackDone,
)
from cachemind.types import Lsn

T = TypeVar("T")


class Asked:
    """Calls that block, whichever client makes them."""

    def __init__(self, client: CacheMind | AsyncCacheMind) -> None:
        self.client = client
        self._runner = asyncio.Runner()

    def _do(self, method: str, *args: Any, **named: Any) -> Any:
        found = getattr(self.client, method)(*args, **named)
        return self._runner.run(found) if asyncio.iscoroutine(found) else found

    def complete(self, *args: Any, **named: Any) -> Answer:
        answer: Answer = self._do("complete", *args, **named)
        return answer

    def lookup(self, *args: Any, **named: Any) -> Answer | None:
        answer: Answer | None = self._do("lookup", *args, **named)
        return answer

    def put(self, *args: Any, **named: Any) -> PutResult:
        result: PutResult = self._do("put", *args, **named)
        return result

    def invalidate(self, *args: Any, **named: Any) -> Lsn:
        lsn: Lsn = self._do("invalidate", *args, **named)
        return lsn

    def feedback(self, *args: Any, **named: Any) -> Lsn:
        lsn: Lsn = self._do("feedback", *args, **named)
        return lsn

    def rollback(self, *args: Any, **named: Any) -> RollbackDone:
        done: RollbackDone = self._do("rollback", *args, **named)
        return done

    def receipt(self, *args: Any, **named: Any) -> Receipts | None:
        found: Receipts | None = self._do("receipt", *args, **named)
        return found

    def stream(self, *args: Any, **named: Any) -> tuple[Answer, list[Part], Answer]:
        """Return what was known first, every part, and all of it as one answer."""
        if isinstance(self.client, CacheMind):
            with self.client.stream(*args, **named) as stream:
                return stream.head, list(stream), stream.answer()
        return self._runner.run(_streamed(self.client, *args, **named))

    def close(self) -> None:
        self._do("close")
        self._runner.close()


async def _streamed(
    client: AsyncCacheMind, *args: Any, **named: Any
) -> tuple[Answer, list[Part], Answer]:
    async with await client.stream(*args, **named) as stream:
        parts = [part async for part in stream]
        return stream.head, parts, stream.answer()


@contextmanager
def asked(
    make: Callable[..., CacheMind | AsyncCacheMind], url: str, **named: Any
) -> Iterator[Asked]:
    """Yield a client of `url`, and close it."""
    found = Asked(make(url, **named))
    try:
        yield found
    finally:
        found.close()


def run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner() as runner:
        return runner.run(work)
