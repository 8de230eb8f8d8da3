"""Checkpoints of a partition's store, made as its fold goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from cachemind.agents.forgetting import Forgetting
from cachemind.errors import StoreError
from cachemind.ports import CheckpointMaker, Clock

log = logging.getLogger(__name__)

EVERY_EVENTS: Final = 10_000
INTERVAL_S: Final = 300.0
_NS_PER_S: Final = 1_000_000_000


def _nobody_asks() -> None:
    """Do nothing."""


class Checkpointing:
    """Makes a checkpoint after so many records, or so much time, and thins them out.

    Lives on the fold's thread, right behind a commit. That a checkpoint cannot be
    made costs the time of a longer replay, so it is said and the fold goes on.
    """

    def __init__(
        self,
        maker: CheckpointMaker,
        clock: Clock,
        *,
        every_events: int = EVERY_EVENTS,
        interval_s: float = INTERVAL_S,
        changed: Callable[[], None] = _nobody_asks,
        forgetting: Forgetting | None = None,
    ) -> None:
        """`changed` is called after checkpoints were made or removed.

        `forgetting` gives up the history that those which are left do not need.
        """
        self._forgetting = forgetting
        self._changed = changed
        self._maker = maker
        self._clock = clock
        self._every_events = every_events
        self._interval_ns = int(interval_s * _NS_PER_S)
        self._since = 0
        self._last_ns = clock.now_ns()

    def committed(self, records: int) -> None:
        """Note that so many more are folded; make a checkpoint if it is time."""
        self._since += records
        self._forget()
        now_ns = self._clock.now_ns()
        if self._since < self._every_events and (
            now_ns - self._last_ns < self._interval_ns
        ):
            return
        self._since, self._last_ns = 0, now_ns
        try:
            self._maker.make(now_ns)
            self._maker.prune(now_ns)
            self._changed()
            if self._forgetting is not None:
                self._forgetting.begin()
        except StoreError:
            log.exception("no checkpoint was made")

    def _forget(self) -> None:
        if self._forgetting is None:
            return
        try:
            self._forgetting.go_on()
        except StoreError:
            log.exception("history that nothing needs is still there")
