"""What may be served: the store's entries with the overlay on top."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from cachemind.core.cache_control import Effective
from cachemind.core.completion import parse_object
from cachemind.core.entry_bytes import Served, serving
from cachemind.core.state import VersionRow
from cachemind.errors import MalformedCompletion, StoreError
from cachemind.ports import StoreView
from cachemind.types import ExactKey, Namespace, Offset, Sha256, Version
from cachemind_services.gateway.follower import Follower
from cachemind_services.gateway.overlay import Overlay

_LOG: Final = logging.getLogger("cachemind.gateway")
_MOST_REMEMBERED: Final = 8192
NS_PER_MS: Final = 1_000_000
_MOST_VERSIONS: Final = 256
"""How many versions back an event's own is looked for."""


class Entries:
    """Looks entries up by exact key. A store that cannot be read holds nothing."""

    def __init__(
        self,
        view: StoreView,
        overlay: Overlay,
        namespace: Namespace,
        follower: Follower,
    ) -> None:
        self._view = view
        self._overlay = overlay
        self._namespace = namespace
        self._follower = follower
        self._with_usage: dict[Sha256, bool] = {}

    def fence(self) -> Offset:
        """Return what a rollback moves: what was read before may be void since."""
        return self._view.fenced_at(self._namespace)

    @property
    def fenced(self) -> bool:
        """Return whether nothing may be served: a rollback is under way, or failed.

        Both facts of the follower are of one catch-up, those of the view may not be.
        """
        follower = self._follower
        return follower.applied < self.fence() or follower.quarantine is not None

    def raw(self, key: ExactKey) -> bytes | None:
        """Return the bytes of the entry at `key`; None where it may not be served."""
        if self.fenced:
            return None
        own = self._overlay.raw_entry(key)
        if own is not None:
            return own
        try:
            raw = self._view.raw_entry(self._namespace, key)
            return None if raw is None or self._overlay.hides(raw) else raw
        except StoreError as error:
            _LOG.warning("look-up failed: %s", error)
            return None

    def removed_at(self, offset: Offset) -> int | None:
        """Return how many entries the folded event at `offset` removed.

        None where its version is too far back by now. Raises: `StoreError`.
        """
        head = self._follower.state.version
        first = max(1, head - _MOST_VERSIONS)
        rows = self._view.versions(self._namespace, Version(first), head)
        return removed_by(rows, offset)

    def refusal(
        self, served: Served, effective: Effective, now_ns: int, *, usage: bool
    ) -> str | None:
        """Return why this entry may not answer this request, None where it may.

        `usage`: the answer must tell how many tokens it took.
        """
        if now_ns >= served.expires_at_ns:
            return "expired"
        limit_ms = effective.max_age_ms
        if limit_ms is not None and now_ns - served.stored_at_ns > limit_ms * NS_PER_MS:
            return "max-age"
        if usage and not self._has_usage(served):
            return "no-usage"
        return None

    def exact(self, key: ExactKey) -> Served | None:
        """Return the entry at `key`, expired or not."""
        raw = self.raw(key)
        try:
            return None if raw is None else serving(raw)
        except StoreError as error:
            _LOG.error("the entry %s is corrupt: %s", key.hex(), error)
            return None

    def _has_usage(self, served: Served) -> bool:
        known = self._with_usage.get(served.response_hash)
        if known is None:
            if len(self._with_usage) >= _MOST_REMEMBERED:
                self._with_usage.clear()
            known = _tells_usage(served.response)
            self._with_usage[served.response_hash] = known
        return known


def removed_by(rows: Sequence[VersionRow], offset: Offset) -> int | None:
    """Return how many entries the event at `offset` removed, by the newest `rows`.

    An event without a row changed nothing. None where they do not reach back to it.
    """
    for before, row in pairwise(rows):
        if row.offset == offset:
            return before.entries - row.entries
    reached = not rows or rows[0].version == 1 or rows[0].offset < offset
    return 0 if reached else None


def _tells_usage(response: bytes) -> bool:
    try:
        return parse_object(response).get("usage") is not None
    except MalformedCompletion:
        return False  # another writer's; the fold takes any bytes
