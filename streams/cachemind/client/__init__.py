"""The cache from an application: `CacheMind`, and `AsyncCacheMind` to await."""

from cachemind.client.arguments import Kafka, RollbackGoal, Selector
from cachemind.client.async_cache import AsyncCacheMind
from cachemind.client.async_stream import AsyncStream
from cachemind.client.cache import CacheMind
from cachemind.client.errors import (
    CallFailed,
    Conflict,
    NoCache,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    NotOffered,
    NotValid,
    PastTheHorizon,
    StreamCut,
    TooMany,
    Unavailable,
)
from cachemind.client.repeating import Patience
from cachemind.client.results import Answer, Control, Part, PutResult, Receipts
from cachemind.client.sync_stream import Stream
from cachemind.core.commands import RollbackDone, RollbackState

__all__ = [
    "Answer",
    "AsyncCacheMind",
    "AsyncStream",
    "CacheMind",
    "CallFailed",
    "Conflict",
    "Control",
    "Kafka",
    "NoCache",
    "NotAllowed",
    "NotAuthenticated",
    "NotFound",
    "NotOffered",
    "NotValid",
    "Part",
    "PastTheHorizon",
    "Patience",
    "PutResult",
    "Receipts",
    "RollbackDone",
    "RollbackGoal",
    "RollbackState",
    "Selector",
    "Stream",
    "StreamCut",
    "TooMany",
    "Unavailable",
]
