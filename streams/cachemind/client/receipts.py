"""The receipts of a trace, page by page. No I/O."""

from __future__ import annotations

from cachemind.client.errors import NoCache
from cachemind.client.http_calls import Ask, receipts
from cachemind.client.results import Receipts
from cachemind.core.completion import Json, JsonObject


class Pages:
    """Asks for page after page: `next`, then `take` its answer, until it is None."""

    def __init__(self, trace_id: str, wait_s: float) -> None:
        self._trace_id = trace_id
        self._wait_s = wait_s
        self._found: list[Json] = []
        self._after: int | None = None
        self._ended = False

    def next(self) -> Ask[JsonObject | None] | None:
        """Return what to ask next, None where all is there."""
        if self._ended:
            return None
        wait_s = self._wait_s if self._after is None else 0.0
        return receipts(self._trace_id, wait_s, self._after)

    def take(self, page: JsonObject | None) -> None:
        """Take in the answer. Raises: `NoCache`."""
        if page is None:
            self._ended = True
            return
        found, after = page.get("receipts"), page.get("next_after")
        if not isinstance(found, list) or not (after is None or type(after) is int):
            raise NoCache("the receipts are not as CacheMind's")
        self._found += found
        self._after = after
        self._ended = after is None

    def receipts(self) -> Receipts | None:
        """Return all of them as one document, None where there are none."""
        if not self._found:
            return None
        document: JsonObject = {
            "trace_id": self._trace_id,
            "receipts": self._found,
            "next_after": None,
        }
        return Receipts(trace_id=self._trace_id, document=document)
