"""A rate limit as a value: so many at once, so many a second."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

_NS_PER_S: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """`burst` tokens at once, refilled with `per_s` a second."""

    per_s: float
    burst: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """What is left of a rate as of `at_ns`, a clock that never goes back."""

    tokens: float
    at_ns: int

    @classmethod
    def full(cls, rate: Rate, now_ns: int) -> Bucket:
        """Return a bucket from which nothing was taken yet."""
        return cls(tokens=rate.burst, at_ns=now_ns)

    def taken(self, rate: Rate, now_ns: int, cost: float = 1.0) -> Bucket | None:
        """Return the bucket after taking `cost` tokens, None where they are not there.

        None changes nothing: who is refused does not wait any longer for it.
        """
        # As `at`, without a bucket in between: each request pays for it.
        passed_s = max(0, now_ns - self.at_ns) / _NS_PER_S
        there = min(rate.burst, self.tokens + passed_s * rate.per_s)
        if there < cost:
            return None
        return Bucket(tokens=there - cost, at_ns=max(now_ns, self.at_ns))

    def at(self, rate: Rate, now_ns: int) -> Bucket:
        """Return the bucket as it is at `now_ns`, refilled."""
        passed_s = max(0, now_ns - self.at_ns) / _NS_PER_S
        tokens = min(rate.burst, self.tokens + passed_s * rate.per_s)
        return replace(self, tokens=tokens, at_ns=max(now_ns, self.at_ns))

    def wait_s(self, rate: Rate, now_ns: int, cost: float = 1.0) -> float:
        """Return in how many seconds `cost` tokens will be there; for `Retry-After`."""
        lacking = cost - self.at(rate, now_ns).tokens
        return max(0.0, lacking / rate.per_s)
