"""When to ask the broker again: at once while little comes, seldom under load.

What Faust and aiokafka do for one fetch and each of its records costs more than the
fold itself. Fetches that are further apart bring more records each, and the broker
answers fewer of them.
"""

from __future__ import annotations

from typing import Final

APART_S: Final = 0.04
"""Between two fetches under load: how much later an event may become visible."""

AT_ONCE: Final = 20
"""Fetches that found something and need not wait, saved up while little comes."""


class Pacing:
    """A token bucket over fetches that found records; a token comes every `apart_s`.

    Units: seconds of one monotonic clock.
    """

    def __init__(self, apart_s: float = APART_S) -> None:
        self._apart_s = apart_s
        self._tokens = float(AT_ONCE)
        self._since_s = 0.0

    def found(self, now_s: float) -> None:
        """Note that a fetch brought records."""
        passed_s = max(0.0, now_s - self._since_s)
        self._tokens = min(AT_ONCE, self._tokens + passed_s / self._apart_s) - 1.0
        self._since_s = now_s

    def wait_s(self, now_s: float) -> float:
        """Return how long the next fetch should wait, 0 for not at all."""
        tokens = self._tokens + max(0.0, now_s - self._since_s) / self._apart_s
        return min(self._apart_s, max(0.0, -tokens * self._apart_s))
