"""The key book as the fold shows it, followed live."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from cachemind.core.access import ACCESS_NAMESPACE
from cachemind.core.api_keys import KeyBook
from cachemind.core.partitioner import partition_of
from cachemind.errors import InvalidEvent
from cachemind.types import Partition
from cachemind_services.gateway.follower import Follower, Freshness
from cachemind_services.gateway.shared import Shared

_LOG: Final = logging.getLogger("cachemind.gateway")
_EMPTY: Final = KeyBook.of(0, ())


class FollowedKeys:
    """Knows the keys that count; `on_change` is called when they are others.

    A book that cannot be read holds no key.
    """

    def __init__(self, shared: Shared, on_change: Callable[[], None]) -> None:
        views = shared.deps.views
        home = Partition(partition_of(ACCESS_NAMESPACE.encode(), len(views)))
        self._follower = Follower(
            shared.follower(home), ACCESS_NAMESPACE, self._freshened
        )
        self._on_change = on_change
        self._text: str | None = None
        self.book = _EMPTY
        self.problem: str | None = None

    @property
    def known(self) -> bool:
        """Return whether the keys were read at all."""
        return self._text is not None

    def not_ready(self) -> list[str]:
        """Return why this worker should get no traffic yet; empty once it should."""
        reason = self._follower.not_ready
        return [] if reason is None else [f"keys: {reason}"]

    def warnings(self) -> list[str]:
        """Return what is wrong although requests are answered."""
        return [] if self.problem is None else [self.problem]

    async def start(self) -> None:
        """Begin following, after a first look."""
        await self._follower.start()

    async def stop(self) -> None:
        """End following."""
        await self._follower.stop()

    def _freshened(self, fresh: Freshness) -> None:
        text = fresh.state.policy
        if text == self._text:
            return
        self._text = text
        try:
            self.book, self.problem = KeyBook.parse(text), None
        except InvalidEvent as error:
            self.book = _EMPTY
            self.problem = f"the key book cannot be read, no key counts: {error}"
            _LOG.error("%s", self.problem)
        self._on_change()
