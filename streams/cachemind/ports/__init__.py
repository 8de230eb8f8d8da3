"""What the library needs from outside. Each port has an in-memory adapter too.

No third-party exception or type crosses a port.
"""

from cachemind.core.state import Change, ContextRow
from cachemind.ports.checkpoints import (
    CheckpointMaker,
    Checkpoints,
    RollbackProgressBoard,
)
from cachemind.ports.clock import (
    Clock,
)
from cachemind.ports.keys import (
    KeyWrapper,
    SignatureCheck,
    SigningKey,
)
from cachemind.ports.log import (
    Decoder,
    FoldMetrics,
    GroupOffsets,
    Headers,
    LogFollower,
    LogReader,
    LogRecord,
    LogTimes,
    LogWriter,
    OffsetMemory,
    SchemaIds,
)
from cachemind.ports.models import (
    Embedder,
    Upstream,
    UpstreamRequest,
    UpstreamResponse,
)
from cachemind.ports.store import (
    HistoryStore,
    LiveStore,
    ShadowStore,
    StoreHistory,
    StoreInspector,
    StoreView,
    StoreWriter,
)

__all__ = [
    "Change",
    "CheckpointMaker",
    "Checkpoints",
    "Clock",
    "ContextRow",
    "Decoder",
    "Embedder",
    "FoldMetrics",
    "GroupOffsets",
    "Headers",
    "HistoryStore",
    "KeyWrapper",
    "LiveStore",
    "LogFollower",
    "LogReader",
    "LogRecord",
    "LogTimes",
    "LogWriter",
    "OffsetMemory",
    "RollbackProgressBoard",
    "SchemaIds",
    "ShadowStore",
    "SignatureCheck",
    "SigningKey",
    "StoreHistory",
    "StoreInspector",
    "StoreView",
    "StoreWriter",
    "Upstream",
    "UpstreamRequest",
    "UpstreamResponse",
]
