"""How far a partition was looked at beyond the last record that has a receipt.

A log may end with marks of transactions, which are no records, and retention deletes
them as it deletes records: who begins after that finds a log that begins past the last
record that was signed, and cannot see whether there was another one between. What
this host has looked at is kept, bound to the last receipt; another host that does not
know refuses.
"""

from __future__ import annotations

import logging

import orjson

from cachemind.errors import StoreUnavailable
from cachemind.ports.audit import HostMemory
from cachemind.types import Offset, Sha256

log = logging.getLogger(__name__)


class SettledPlace:
    """The place of one partition; use it from one thread."""

    def __init__(self, memory: HostMemory) -> None:
        self._memory = memory

    def note(self, leaf: Sha256, position: Offset) -> None:
        """Keep that no record is between the one of the last receipt and `position`.

        `leaf` is that receipt's. Where it cannot be kept, it is not known later.
        """
        content = orjson.dumps({"leaf": leaf.hex(), "position": position})
        try:
            self._memory.save(content)
        except StoreUnavailable as error:
            log.warning("how far the log was looked at is not kept: %s", error)

    def after(self, leaf: Sha256) -> Offset | None:
        """Return the place after the receipt with that leaf; None if not known."""
        try:
            content = self._memory.load()
            found = None if content is None else orjson.loads(content)
            if found is None or found["leaf"] != leaf.hex():
                return None
            return Offset(int(found["position"]))
        except (StoreUnavailable, LookupError, TypeError, ValueError) as error:
            log.warning("how far the log was looked at is not known: %s", error)
            return None
