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
_OLDER: Final = "the store shows an older key book; the newer one that was seen counts"

LOG_NS: Final = 5_000_000_000
"""How long the log may take to say where it ends, before what is here has to do."""


class FollowedKeys:
    """Knows the keys that count; `on_change` is called when they are others.

    A book that cannot be read holds no key. An older one than was seen does not count:
    a store that is rebuilt shows keys that were revoked since.
    """

    def __init__(self, shared: Shared, on_change: Callable[[], None]) -> None:
        views = shared.deps.views
        home = Partition(partition_of(ACCESS_NAMESPACE.encode(), len(views)))
        self._follower = Follower(
            shared.follower(home), ACCESS_NAMESPACE, self._freshened
        )
        self._on_change = on_change
        self._clock = shared.deps.clock
        self._since_ns = self._clock.now_ns()
        self._text: str | None = None
        self._known = False
        self._newest = 0
        self.book = _EMPTY
        self.problem: str | None = None

    @property
    def known(self) -> bool:
        """Return whether the keys are those of now, as far as anybody can tell.

        The store of a host that was away is behind, and may hold keys that were
        revoked since. Where the log is away too, what is here has to do.
        """
        if not self._known and self._text is not None:
            goal = self._follower.goal
            if goal is not None:
                self._known = self._follower.applied >= goal
            else:
                self._known = self._clock.now_ns() - self._since_ns >= LOG_NS
        return self._known

    def not_ready(self) -> list[str]:
        """Return why this worker should get no traffic yet; empty once it should."""
        reason = self._follower.not_ready
        if reason is None and not self.known:
            reason = "they were not read yet"
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
            book = KeyBook.parse(text)
        except InvalidEvent as error:
            self.book = _EMPTY
            self.problem = f"the key book cannot be read, no key counts: {error}"
            _LOG.error("%s", self.problem)
            self._on_change()
            return
        if book.revision < self._newest:
            self.problem = _OLDER
            _LOG.warning("%s", self.problem)
            return
        self.book, self.problem, self._newest = book, None, book.revision
        self._on_change()
