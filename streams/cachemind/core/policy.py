"""What a namespace allows, as one frozen value with safe defaults."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cachemind.errors import InvalidEvent

MS_PER_S: Final = 1_000
MS_PER_HOUR: Final = 3_600 * MS_PER_S
MS_PER_DAY: Final = 24 * MS_PER_HOUR
MOST_ENTRIES: Final = 10_000_000
MOST_BYTES: Final = 64 * 2**30
"""By default: far more than one host keeps well, and not without end."""


class Volatile(StrEnum):
    """What happens to answers that time alone makes wrong."""

    REFUSE = "refuse"
    SHORT = "short"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A namespace's rules; a request's own controls may only tighten them.

    `threshold` is the lowest cosine that may be served. `volatile` says whether a
    prompt about the present is refused or kept for `uncertain_ttl_ms`, as an
    answer of middling confidence is. With `share_across_credentials` callers with
    different upstream credentials may get each other's answers. A namespace that has
    `max_entries` entries, or `max_total_bytes` of them, stores no more.

    Units: `_ms` are durations in milliseconds, `max_entry_bytes` counts the stored
    canonical response, `max_total_bytes` whole entries.
    """

    enabled: bool = True
    semantic: bool = True
    threshold: float = 0.92
    default_ttl_ms: int = MS_PER_DAY
    uncertain_ttl_ms: int = 30 * MS_PER_S
    max_ttl_ms: int = 7 * MS_PER_DAY
    max_entry_bytes: int = 1 << 20
    max_entries: int = MOST_ENTRIES
    max_total_bytes: int = MOST_BYTES
    volatile: Volatile = Volatile.REFUSE
    share_across_credentials: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.threshold) and 0 < self.threshold <= 1):
            raise InvalidEvent("threshold", "must be above 0 and at most 1")
        for name in (
            "default_ttl_ms",
            "uncertain_ttl_ms",
            "max_ttl_ms",
            "max_entry_bytes",
            "max_entries",
            "max_total_bytes",
        ):
            if getattr(self, name) < 1:
                raise InvalidEvent(name, "must be at least 1")
