"""Which checkpoints to keep: many of the last hour, few of the last week.

One a minute for an hour, one an hour for a day, one a day for a week: the newest of
each. The newest of all is always kept, so are those that a name keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cachemind.types import Offset

_S: Final = 1_000_000_000
MINUTE_NS: Final = 60 * _S
HOUR_NS: Final = 60 * MINUTE_NS
DAY_NS: Final = 24 * HOUR_NS
TIERS: Final = ((HOUR_NS, MINUTE_NS), (DAY_NS, HOUR_NS), (7 * DAY_NS, DAY_NS))
"""Up to which age one checkpoint is kept per how much time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dated:
    """A checkpoint. `permanent` ones are kept by name."""

    offset: Offset
    created_at_ns: int
    permanent: bool = False


def outdated(found: Iterable[Dated], now_ns: int) -> Sequence[Dated]:
    """Return those that may go, the oldest first."""
    newest_first = sorted(
        found, key=lambda one: (one.created_at_ns, one.offset), reverse=True
    )
    gone: list[Dated] = []
    filled: set[tuple[int, int]] = set()
    for at, one in enumerate(newest_first):
        if one.permanent:
            continue
        slot = _slot(one.created_at_ns, now_ns)
        if at > 0 and (slot is None or slot in filled):
            gone.append(one)
        elif slot is not None:
            filled.add(slot)
    return gone[::-1]


def _slot(created_at_ns: int, now_ns: int) -> tuple[int, int] | None:
    """Return the stretch of time that keeps one checkpoint; None for too old."""
    for up_to_ns, every_ns in TIERS:
        # A clock that was set back makes ages negative: they are of the first tier.
        if now_ns - created_at_ns < up_to_ns:
            return every_ns, created_at_ns // every_ns
    return None
