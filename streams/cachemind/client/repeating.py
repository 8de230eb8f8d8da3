"""When a call is made again, and after how long. No clock, no sleep."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from cachemind.client.errors import CallFailed, TooMany, Unavailable


class Again(Enum):
    """What of a call that failed may be made again.

    ALWAYS: done twice it is as done once. UNSTARTED: only where it was not done.
    """

    ALWAYS = auto()
    UNSTARTED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How often a call is made again, and after how long.

    Units: seconds. The pause doubles from `first_s` up to `most_s`; half of it is
    chance, so that many clients do not come back at once. A `Retry-After` is waited
    for where it is longer.
    """

    retries: int = 2
    first_s: float = 0.25
    most_s: float = 8.0

    def share_s(self, left_s: float, attempt: int) -> float:
        """Return how long an attempt may take, so that the others get as much."""
        return max(left_s, 0.0) / max(self.retries - attempt + 1, 1)

    def pause_s(
        self, failed: CallFailed, attempt: int, again: Again, chance: float
    ) -> float | None:
        """Return how long to wait before the next attempt, None to give up.

        `attempt` is 0 for the first that failed; `chance` is from [0, 1).
        """
        if attempt >= self.retries or not _may(failed, again):
            return None
        asked_s = failed.retry_after_s if isinstance(failed, _WAITING) else 0.0
        pause_s = min(self.first_s * 2.0**attempt, self.most_s)
        return max(pause_s * (0.5 + chance / 2), asked_s)


_WAITING = (TooMany, Unavailable)


def _may(failed: CallFailed, again: Again) -> bool:
    match failed:
        case TooMany():
            return True
        case Unavailable():
            return again is Again.ALWAYS or not failed.sent
        case _:
            return False
