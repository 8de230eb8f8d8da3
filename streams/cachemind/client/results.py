"""What the cache answers a client."""

from __future__ import annotations

from dataclasses import dataclass

from cachemind.core.completion import Json, JsonObject
from cachemind.events import Outcome
from cachemind.types import Lsn


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """What one request asks of the cache. It may tighten policy, never loosen it.

    `threshold` is the lowest cosine of a hit by meaning; `exact` allows none. `ttl_s`
    is the longest life of what the request stores, `max_age_s` the greatest age of
    what it is served, both in seconds. `refresh` asks upstream and stores its answer,
    `store` False does not store, `off` goes around the cache.
    """

    threshold: float | None = None
    exact: bool = False
    ttl_s: int | None = None
    max_age_s: int | None = None
    refresh: bool = False
    store: bool = True
    off: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A completion, and what the cache did.

    `key` is that of the entry that was served, 64 hex characters; None where none
    was. `trace_id` is the W3C trace id, 32 hex characters. `lsn` is where the event of
    this answer is on the WAL, None while the log is away. `version` is the namespace's
    that the look-up saw, None where that is not told.
    """

    completion: JsonObject
    outcome: Outcome
    trace_id: str
    key: str | None
    lsn: Lsn | None
    version: int | None
    similarity: float | None

    @property
    def text(self) -> str:
        """Return the text of the first choice; empty where it has none."""
        return _text(self.completion, "message")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a streamed completion: a `chat.completion.chunk`."""

    chunk: JsonObject

    @property
    def text(self) -> str:
        """Return the text that the part adds to the first choice."""
        return _text(self.chunk, "delta")


@dataclass(frozen=True, slots=True, kw_only=True)
class PutResult:
    """An entry is stored. `key` is 64 hex characters; `ttl_ms` its life."""

    key: str
    lsn: Lsn
    snapshot_id: str
    ttl_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipts:
    """The receipts of a trace, with all that proves them offline.

    `document` is the JSON that `cachemind audit show --evidence` reads.
    """

    trace_id: str
    document: JsonObject


def _text(completion: JsonObject, name: str) -> str:
    choices = completion.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message: Json = first.get(name) if isinstance(first, dict) else None
    text = message.get("content") if isinstance(message, dict) else None
    return text if isinstance(text, str) else ""
