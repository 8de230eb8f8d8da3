"""What a collector gives up: entries that nobody can be served any more.

Only what has expired goes. A namespace that is full refuses to store more: there is no
policy that would rather give up entries that live. Pinned entries stay, expired or not:
they are an operator's.

Two things make a clock harmless. The fold holds an eviction to its word (see
`decisions`), so what was stored anew meanwhile stays. And nobody goes by the host's
clock alone: a jump ahead would empty the cache, see `LogClock`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from cachemind.types import ExactKey

MOST_KEYS: Final = 512
"""In one event: 16 KB of keys, and a moment of the fold's time."""

MOST_BYTES: Final = 16 * 2**20
"""Of the entries that one event removes: the fold reads each of them once more."""

MOST_LOOKED: Final = 20_000
"""Entries that one step looks at: some tens of milliseconds."""


class Held(NamedTuple):
    """What a store holds at one key: until when, how much, and whether it is pinned."""

    exact_key: ExactKey
    expires_at_ns: int
    pinned: bool
    size_bytes: int


class Found(NamedTuple):
    """The keys that may go, and the key after which to go on; None at the end."""

    keys: tuple[ExactKey, ...]
    after: ExactKey | None


LONGEST_START_S: Final = 600
"""A clock that is ever put right is by then."""


def start_s(interval_s: int, grace_s: int) -> int:
    """Return how long a collector waits before its first sweep, in seconds.

    A host may begin with a wrong clock, and the newest event on the log have it too:
    nobody can tell then that it jumped, as a `LogClock` does later. So there is time
    to put it right.
    """
    return max(interval_s, min(grace_s, LONGEST_START_S))


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectRules:
    """How long after its end an entry is kept, and how much goes at once."""

    grace_ns: int
    most_keys: int = MOST_KEYS
    most_bytes: int = MOST_BYTES
    most_looked: int = MOST_LOOKED


def may_go(held: Held, now_ns: int, rules: CollectRules) -> bool:
    """Return whether an entry has been expired for the grace period."""
    return not held.pinned and held.expires_at_ns + rules.grace_ns <= now_ns


def collected(entries: Iterable[Held], now_ns: int, rules: CollectRules) -> Found:
    """Return what of `entries`, which come in key order, one event removes.

    It ends with the key that fills it, also where that is larger than all of them may
    be: each step gets further.
    """
    keys: list[ExactKey] = []
    size_bytes = 0
    for looked, held in enumerate(entries, start=1):
        if may_go(held, now_ns, rules):
            keys.append(held.exact_key)
            size_bytes += held.size_bytes
        full = len(keys) >= rules.most_keys or size_bytes >= rules.most_bytes
        if full or looked >= rules.most_looked:
            return Found(tuple(keys), held.exact_key)
    return Found(tuple(keys), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogClock:
    """The time by the log's own events, carried on where nothing is written.

    Begins with the newest event and goes as fast as time does. Newer events set it
    ahead at once by up to `patience_ns`; where they are further ahead, somebody's clock
    may have jumped, and it follows once they have been so for `patience_ns`. It never
    goes back. Of this and the host's clock the earlier one is believed: then one that
    is wrong makes evictions late, and only both together, for that long, make them
    early.

    Units: `_ns` are nanoseconds; `told_ns` since the Unix epoch (UTC), `at_ns` and
    `ahead_since_ns` on a clock of this process that is never set.
    """

    told_ns: int
    at_ns: int
    ahead_since_ns: int | None = None

    def later(self, newest_ns: int, at_ns: int, patience_ns: int) -> LogClock:
        """Return the clock at `at_ns`, when `newest_ns` is the newest event's time."""
        carried_ns = self.told_ns + max(0, at_ns - self.at_ns)
        if newest_ns <= carried_ns + patience_ns:
            return LogClock(told_ns=max(carried_ns, newest_ns), at_ns=at_ns)
        since_ns = at_ns if self.ahead_since_ns is None else self.ahead_since_ns
        if at_ns - since_ns >= patience_ns:
            return LogClock(told_ns=newest_ns, at_ns=at_ns)
        return LogClock(told_ns=carried_ns, at_ns=at_ns, ahead_since_ns=since_ns)
