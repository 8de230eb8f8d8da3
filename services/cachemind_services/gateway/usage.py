"""Asks upstream to tell a stream's token usage, where the client did not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import orjson

from cachemind_services.gateway.call import Call

_WISH: Final = b'"stream_options":{"include_usage":true},'
_MOST_MODELS: Final = 1024
_UNKNOWN_FIELD: Final = frozenset({400, 422})


class UsageWish:
    """Remembers which models' servers do not know `stream_options`."""

    def __init__(self) -> None:
        self._declined: set[str] = set()

    def attempts(self, call: Call, *, capture: bool) -> Iterator[tuple[bytes, bool]]:
        """Yield the bodies to try, each with whether the wish was added.

        The wish is spliced in as the first field: every other byte stays the
        client's. A body that speaks of `stream_options` itself is left alone.
        """
        if capture and self._wishes(call):
            start = call.body.index(b"{") + 1
            yield call.body[:start] + _WISH + call.body[start:], True
        yield call.body, False

    def refused(self, status: int) -> bool:
        """Return whether the answer may be due to the wish."""
        return status in _UNKNOWN_FIELD

    def declined(self, model: str) -> None:
        """A request failed with the wish and went well without."""
        if len(self._declined) < _MOST_MODELS:
            self._declined.add(model)

    def _wishes(self, call: Call) -> bool:
        if call.keys is None:
            return False
        request = call.keys.request
        if not request.stream or request.model in self._declined:
            return False
        return "stream_options" not in orjson.loads(call.body)
