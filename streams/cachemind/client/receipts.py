"""The receipts of a trace, page by page. No I/O."""

from __future__ import annotations

from typing import Final

from cachemind.client import http_calls, kafka_calls
from cachemind.client.errors import NoCache
from cachemind.client.http_calls import Ask
from cachemind.client.kafka_calls import KafkaAsk
from cachemind.client.results import Receipts
from cachemind.core.completion import Json, JsonObject

KAFKA_WAIT_S: Final = 1.0
"""What one command may wait: those behind it on its partition wait as well."""


class Pages:
    """Asks for page after page: the next, then `take` its answer, until it is None."""

    def __init__(self, trace_id: str, wait_s: float) -> None:
        self._trace_id = trace_id
        self._wait_s = wait_s
        self._found: list[Json] = []
        self._after: int | None = None
        self._ended = False

    def by_http(self) -> Ask[JsonObject | None] | None:
        """Return what to ask next, None where all is there."""
        if self._ended:
            return None
        wait_s = self._wait_s if self._after is None else 0.0
        return http_calls.receipts(self._trace_id, wait_s, self._after)

    def by_kafka(self, waited_s: float) -> KafkaAsk[JsonObject | None] | None:
        """Return what to ask next, None where all is there.

        Units: `waited_s` is how long the first page was waited for, seconds.
        """
        if self._ended:
            return None
        left_s = self._wait_s - waited_s if self._after is None else 0.0
        wait_s = min(max(left_s, 0.0), KAFKA_WAIT_S)
        return kafka_calls.receipts(self._trace_id, wait_s, self._after)

    def take(self, page: JsonObject | None, waited_s: float | None = None) -> None:
        """Take in the answer. Raises: `NoCache`.

        With `waited_s` a first page that is not there is asked for until its time is
        over.
        """
        if page is None:
            waits = waited_s is not None and waited_s < self._wait_s
            self._ended = self._after is not None or not waits
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
