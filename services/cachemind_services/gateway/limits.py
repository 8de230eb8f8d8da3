"""What one credential may use up at a time: requests a second, open streams."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from cachemind.core.token_bucket import Bucket, Rate
from cachemind.errors import CacheError

MOST_METERED: Final = 16_384
"""Credentials that are remembered; keys are fewer, tokens may be more."""

STREAMS_RETRY_S: Final = 1
"""When to try again for a stream: nobody knows when one of the others ends."""


class TooMany(CacheError):
    """A credential asks for more than it may; `retry_s` says when to try again."""

    status = 429

    def __init__(self, what: str, retry_s: int) -> None:
        super().__init__(f"too many {what} with this credential; try again later")
        self.what = what
        self.retry_s = retry_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of each credential, on one worker. None: no limit."""

    rate: Rate | None = None
    streams: int | None = None


class Meter:
    """What one credential has used."""

    __slots__ = ("_bucket", "_limits", "open_streams")

    def __init__(self, limits: Limits, now_ns: int) -> None:
        self._limits = limits
        rate = limits.rate
        self._bucket = None if rate is None else Bucket.full(rate, now_ns)
        self.open_streams = 0

    def request(self, now_ns: int) -> None:
        """Count one request. Raises: `TooMany`."""
        rate, bucket = self._limits.rate, self._bucket
        if rate is None or bucket is None:
            return
        left = bucket.taken(rate, now_ns)
        if left is None:
            raise TooMany("requests", max(1, math.ceil(bucket.wait_s(rate, now_ns))))
        self._bucket = left

    def begin_stream(self) -> None:
        """Count one more open stream. Raises: `TooMany`."""
        most = self._limits.streams
        if most is not None and self.open_streams >= most:
            raise TooMany("streams", STREAMS_RETRY_S)
        self.open_streams += 1

    def end_stream(self) -> None:
        """Count one open stream less."""
        self.open_streams -= 1


class Meters:
    """The meters of the credentials that were seen last."""

    def __init__(self, limits: Limits, most: int = MOST_METERED) -> None:
        self._limits = limits
        self._most = most
        self._meters: OrderedDict[str, Meter] = OrderedDict()

    def of(self, credential: str, now_ns: int) -> Meter:
        """Return the meter of a credential."""
        meter = self._meters.get(credential)
        if meter is None:
            meter = self._meters[credential] = Meter(self._limits, now_ns)
            self._forget()
        else:
            self._meters.move_to_end(credential)
        return meter

    def _forget(self) -> None:
        while len(self._meters) > self._most:
            self._meters.popitem(last=False)
