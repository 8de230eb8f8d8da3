"""Stops asking a dependency that keeps failing, and probes it one call at a time."""

from __future__ import annotations

from collections.abc import Callable


class Breaker:
    """Opens after `failures` in a row; lets one probe through every `retry_s`.

    `now` returns seconds on a clock that never steps back.
    """

    def __init__(
        self, *, failures: int, retry_s: float, now: Callable[[], float]
    ) -> None:
        self._limit = failures
        self._retry_s = retry_s
        self._now = now
        self._failed = 0
        self._retry_at = 0.0
        self._probing = False

    @property
    def closed(self) -> bool:
        """Return whether the dependency is in use."""
        return self._failed < self._limit

    def take(self) -> bool:
        """Return whether the caller may try now; it must then report the result."""
        if self.closed:
            return True
        if self._probing or self._now() < self._retry_at:
            return False
        self._probing = True
        return True

    def succeeded(self) -> None:
        """A try went well."""
        self._failed = 0
        self._probing = False

    def failed(self) -> None:
        """A try went wrong."""
        self._failed += 1
        self._probing = False
        self._retry_at = self._now() + self._retry_s

    def released(self) -> None:
        """A try ended without telling anything about the dependency."""
        self._probing = False
