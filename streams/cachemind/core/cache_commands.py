"""What a client may ask of the cache by a command, and what it is told.

Each asks for what a call over HTTP asks for, and is decided by the same code.
"""

from __future__ import annotations

from dataclasses import dataclass

from cachemind.events import Feedback, Outcome, SelectorKind
from cachemind.types import ExactKey, TraceId


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """Answer from the cache or not at all.

    `request` is the JSON body of a chat completion request; the rest are the
    controls that over HTTP are header fields, empty or None where not given.
    """

    request: bytes
    cache_control: str = ""
    mode: str = ""
    threshold: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """Answer from the cache, else from upstream; see `Lookup`.

    `ttl_s` limits how long the answer is served, in whole seconds.
    """

    request: bytes
    cache_control: str = ""
    mode: str = ""
    threshold: float | None = None
    ttl_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """Store `response`, the JSON of a chat completion, as the answer to `request`."""

    request: bytes
    response: bytes
    ttl_s: int | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Invalidate:
    """Serve certain entries no more; see `Invalidated`."""

    kind: SelectorKind
    value: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindReceipt:
    """Show the receipts of a trace, waiting `wait_ms` milliseconds where none is yet.

    Those with a `seq` above `after`.
    """

    trace_id: TraceId
    after: int = -1
    wait_ms: int = 0


CacheCommand = Lookup | Complete | Put | Invalidate | Feedback | FindReceipt
Foreseeable = Complete | FindReceipt
"""What takes long, and is begun before it is decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answer to a `Lookup` or a `Complete`.

    `key` is that of the entry that was served. `status` is the HTTP status, 0
    without an answer; `message` is then empty, else the answer's bytes.
    """

    outcome: Outcome
    reason: str
    key: ExactKey | None
    similarity: float | None
    status: int
    stored: bool
    message: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PutDone:
    """An entry is stored, to be served for `ttl_ms` milliseconds from now on."""

    key: ExactKey
    snapshot_id: str
    ttl_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """The event that was asked for is on the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptFound:
    """Receipts with their proofs, a page: the JSON that is answered over HTTP."""

    document: bytes


CacheAnswer = Answered | PutDone | Logged | ReceiptFound
