"""What was worked out for a body that came before, byte for byte."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cachemind.core.keys import RequestKeys
from cachemind.types import Sha256


@dataclass(frozen=True, slots=True)
class Understood:
    """Everything that follows from body and tenant alone."""

    keys: RequestKeys
    prompt_hash: Sha256


OVERHEAD_BYTES: Final = 1_100
"""What one takes beside its body; measured, it is most of it where that is short."""


class KnownBodies:
    """Holds at most `limit_bytes` of bodies; the oldest go first.

    A hit on the exact key is most often a repeat of the same bytes, and parsing and
    hashing them is a third of its cost.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held_bytes = 0
        self._known: dict[tuple[bytes, bytes], Understood] = {}

    def get(self, tenant: bytes, body: bytes) -> Understood | None:
        """Return what is known of `body` as `tenant` sent it."""
        return self._known.get((tenant, body))

    def put(self, tenant: bytes, body: bytes, understood: Understood) -> None:
        """Remember a body that was not known."""
        # The parsed request is a few times the size of its bytes.
        if len(body) > self._limit_bytes // 8:
            return
        self._known[tenant, body] = understood
        self._held_bytes += _cost(body)
        while self._held_bytes > self._limit_bytes:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._held_bytes -= _cost(oldest[1])


def _cost(body: bytes) -> int:
    return len(body) + OVERHEAD_BYTES
