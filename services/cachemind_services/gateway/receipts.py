"""Receipts for callers: found in the host's index, waited for where asked.

Nothing here runs for a request that does not ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from cachemind.errors import CacheError
from cachemind.ports.receipt_index import ReceiptFinder

T = TypeVar("T")
POLL_S: Final = 0.004
MOST_WAITING: Final = 4096


class TooManyWait(CacheError):
    """More callers wait for receipts than a worker takes."""


@dataclass(slots=True, eq=False)
class _Asked:
    """A question, until when to wait for its answer, and whether it was put yet."""

    question: Callable[[ReceiptFinder], object | None]
    answer: asyncio.Future[Any]
    until: float
    put: bool = False


class Receipts:
    """Asks a `ReceiptFinder` from the event loop, in one thread, never blocking it.

    Those who wait share one look at the index whenever it has changed.
    """

    def __init__(self, finder: ReceiptFinder) -> None:
        self._finder = finder
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="receipts")
        self._waiting: list[_Asked] = []
        self._watcher: asyncio.Task[None] | None = None
        self._leaving = False

    async def find(
        self, question: Callable[[ReceiptFinder], T | None], wait_s: float
    ) -> T | None:
        """Return the first answer that is not None, None after `wait_s`.

        Asks once at least. Raises: `StoreUnavailable`, `TooManyWait`.
        """
        if len(self._waiting) >= MOST_WAITING:
            raise TooManyWait("too many callers wait for receipts already")
        loop = asyncio.get_running_loop()
        until = 0.0 if self._leaving else loop.time() + wait_s
        asked = _Asked(question, loop.create_future(), until)
        self._waiting.append(asked)
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch(), name="find-receipts")
        return cast("T | None", await asked.answer)

    def send_away(self) -> None:
        """Let nobody wait from here on: the worker is about to stop."""
        self._leaving = True
        for asked in self._waiting:
            asked.until = 0.0

    async def close(self) -> None:
        """Send away who waits, then release the index."""
        self.send_away()
        if self._watcher is not None:
            await asyncio.wait({self._watcher})
        await asyncio.to_thread(self._thread.shutdown)
        self._finder.close()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            asked = list(self._waiting)
            try:
                answers = await loop.run_in_executor(self._thread, self._look, asked)
            except Exception as error:  # noqa: BLE001 - raised to whoever asked
                _fail(asked, error)
            else:
                _settle(asked, answers, loop.time())
            self._waiting = [one for one in self._waiting if not one.answer.done()]
            if self._waiting:
                await asyncio.sleep(POLL_S)
        self._watcher = None

    def _look(self, asked: Sequence[_Asked]) -> Sequence[tuple[_Asked, object | None]]:
        """Put every question where the index has changed, else those that are new."""
        finder, questions = self._finder, asked
        if finder.changed():
            finder.catch_up()
        else:
            questions = [one for one in asked if not one.put]
        return [(one, one.question(finder)) for one in questions]


def _settle(
    asked: Sequence[_Asked],
    answers: Sequence[tuple[_Asked, object | None]],
    now: float,
) -> None:
    for one, found in answers:
        one.put = True
        if found is not None and not one.answer.done():
            one.answer.set_result(found)
    for one in asked:
        if now >= one.until and not one.answer.done():
            one.answer.set_result(None)


def _fail(asked: Sequence[_Asked], error: Exception) -> None:
    for one in asked:
        if not one.answer.done():
            one.answer.set_exception(error)
