"""One thread with a queue: what it does, it does in order and alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class OwnThread:
    """Runs blocking calls one after the other, away from the event loop.

    A call that was begun is finished even if whoever awaits it is cancelled.
    """

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, name)

    async def run(self, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `do` returns, or raise what it raises."""
        call = self._pool.submit(do, *args, **kwargs)
        return await asyncio.wrap_future(call)

    async def finish(self, last: Callable[[], None], timeout_s: float) -> bool:
        """Return whether `last` ran, after all else, within `timeout_s`."""
        try:
            await asyncio.wait_for(self.run(last), timeout_s)
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Take no more calls and forget those not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)
