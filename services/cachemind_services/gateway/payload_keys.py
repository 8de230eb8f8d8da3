"""Keeps a worker's data keys in line with the log and with the store of keys.

A key goes at once when the fold shows it shredded. Where the fold stands still, the
store of keys is looked at every few seconds; where that does not answer either, the
keys are forgotten after a while: whoever erases a namespace can count on it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from typing import Final

from cachemind.errors import CacheError
from cachemind.ports.data_keys import HeldKeys

_LOG: Final = logging.getLogger("cachemind.gateway")
CHECK_S: Final = 5.0
"""Between two looks at the store of keys."""

_POLL_S: Final = 0.02
RETRY_S: Final = 1.0
LEASE_S: Final = 60.0
"""How long keys are used without a look at the store of keys."""

FIRST_S: Final = 10.0
"""For the keys at the start; later they are misses until the keys are there."""


class KeyFollower:
    """Follows what becomes of the keys; `on_gone` is called once one has gone.

    Without keys it does nothing.
    """

    def __init__(
        self,
        keys: HeldKeys | None,
        on_gone: Callable[[], None],
        *,
        check_s: float = CHECK_S,
        lease_s: float = LEASE_S,
    ) -> None:
        self._keys = keys
        self._on_gone = on_gone
        self._check_s = check_s
        self._lease_s = lease_s
        self._seen: Collection[str] = ()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._sound_at = time.monotonic()
        self.problem: str | None = None

    async def start(self) -> None:
        """Get the keys, if they come in time, and begin following."""
        if self._keys is None:
            return
        self.problem = "the data keys were not read yet"
        self._task = asyncio.create_task(self._follow(self._keys), name="follow-keys")
        deadline = time.monotonic() + FIRST_S
        while not self._ready() and time.monotonic() < deadline:
            ended, _ = await asyncio.wait({self._task}, timeout=_POLL_S)
            if ended:
                return

    def folded(self, shredded: Collection[str]) -> None:
        """Take in which keys the fold shows shredded."""
        if self._keys is None or shredded == self._seen:
            return
        self._seen = shredded
        if self._keys.shredded(shredded):
            self._on_gone()
        self._wake.set()

    async def stop(self) -> None:
        """End following and leave the keys' provider."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._keys is not None:
            await asyncio.to_thread(self._keys.close)

    def _ready(self) -> bool:
        return self.problem is None

    async def _follow(self, keys: HeldKeys) -> None:
        while True:
            self._wake.clear()
            pause_s = self._check_s if await self._refresh(keys) else RETRY_S
            try:
                await asyncio.wait_for(self._wake.wait(), min(pause_s, self._check_s))
            except TimeoutError:
                continue

    async def _refresh(self, keys: HeldKeys) -> bool:
        try:
            gone = await asyncio.to_thread(keys.refresh)
        except CacheError as error:
            self._failed(keys, f"data keys: {error}")
            return False
        self._sound_at = time.monotonic()
        self.problem = None
        if gone:
            self._on_gone()
        return True

    def _failed(self, keys: HeldKeys, problem: str) -> None:
        if problem != self.problem:
            _LOG.warning("%s", problem)
        self.problem = problem
        if time.monotonic() - self._sound_at > self._lease_s:
            keys.forget()
            self._on_gone()
