"""What a gateway is built from. Everything here is handed in, nothing is looked up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

from cachemind.core.credentials import TokenVerifier
from cachemind.core.payloads import PLAIN, Payloads
from cachemind.core.policy import Policy
from cachemind.events import Envelope
from cachemind.ports import Clock, Embedder, LogWriter, StoreView, Upstream
from cachemind.ports.data_keys import HeldKeys
from cachemind.ports.receipt_index import ReceiptFinder
from cachemind.types import EncoderId, Namespace, Offset, Partition, Principal, WriterId
from cachemind_services.gateway.http_io import Header
from cachemind_services.gateway.limits import Limits
from cachemind_services.gateway.metrics import GatewayMetrics
from cachemind_services.gateway.time_travel import TimeTravel

NO_ENCODER: Final = EncoderId("none")
_LEAST_SECRET_BYTES: Final = 32

LogEnds = Callable[[], Mapping[Partition, Offset]]
"""Returns the offset after the last record of each WAL partition; blocks.

Raises: `LogUnavailable`.
"""


OpenPast = Callable[[Partition], TimeTravel]
"""Returns the past of a partition's namespaces, for one thread; blocks.

Raises: `CacheError`.
"""


OpenPayloads = Callable[[Namespace], tuple[Payloads, HeldKeys | None]]
"""Returns how a namespace's payloads are kept, and the keys for it; blocks.

Raises: `CacheError`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What authentication needs besides the keys on the log.

    `upstream` are the fields that a namespace's requests carry to upstream where a
    caller brings no secret for it. `tokens` is None without an issuer.
    """

    tokens: TokenVerifier | None = None
    upstream: Mapping[Namespace, tuple[Header, ...]] = field(
        default_factory=dict, repr=False
    )
    limits: Limits = field(default_factory=Limits)


class RecordEncoder(Protocol):
    """The half of the codec that a writer needs."""

    def encode(self, event: Envelope) -> bytes:
        """Return the record of `event`."""
        ...


class WalAck(StrEnum):
    """When an answer leaves."""

    ACKED = "acked"
    ASYNC = "async"


class OnWalFailure(StrEnum):
    """What a request gets while its record cannot be acknowledged."""

    BYPASS = "bypass"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Units: `_s` seconds, `_bytes` bytes.

    `secret` keys prompt hashes and tenant ids; equal on all hosts of a namespace.
    `wal_buffer` bounds the look-ups that wait for an acknowledgement. `index_rows`
    bounds the vectors in memory, `candidates` those judged for one prompt.
    `turns_file` is shared by the workers of one host, where there are several, for
    single flight across them; a worker waits `turn_wait_s` for another at most.
    With `log_passed_on` answers that are none of the cache's have a `Read` as well.
    At most `most_open` namespaces are open at a time.
    """

    namespace: Namespace
    principal: Principal
    writer: WriterId
    secret: bytes = field(repr=False)
    policy: Policy = field(default_factory=Policy)
    wal_ack: WalAck = WalAck.ACKED
    on_wal_failure: OnWalFailure = OnWalFailure.BYPASS
    wal_timeout_s: float = 3.0
    wal_retry_s: float = 1.0
    wal_buffer: int = 10_000
    embed_deadline_s: float = 0.2
    max_body_bytes: int = 16 * 2**20
    max_cacheable_bytes: int = 2**20
    overlay_bytes: int = 64 * 2**20
    index_rows: int = 200_000
    candidates: int = 8
    turns_file: Path | None = None
    turn_wait_s: float = 60.0
    log_passed_on: bool = False
    drain_s: float = 8.0
    most_open: int = 64

    def __post_init__(self) -> None:
        if len(self.secret) < _LEAST_SECRET_BYTES:
            raise ValueError(f"secret must have {_LEAST_SECRET_BYTES} bytes or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayDeps:
    """The ports of one gateway worker; it closes views, log, upstream when it stops.

    `views` has one view a WAL partition, by number. `random` returns that many
    unguessable bytes. `past` is None where the gateway itself shows the past.
    `receipts` is None where none are kept.
    `payload_keys` are those that `payloads` are sealed under, None in the clear;
    `payloads_of` tells both of another namespace. `access` is None where
    authentication is off; then the settings' namespace is the only one.
    """

    settings: GatewaySettings
    views: Sequence[StoreView]
    wal: LogWriter
    codec: RecordEncoder
    embedder: Embedder | None
    upstream: Upstream
    clock: Clock
    random: Callable[[int], bytes]
    log_ends: LogEnds
    metrics: GatewayMetrics
    past: OpenPast | None = None
    receipts: ReceiptFinder | None = None
    payloads: Payloads = PLAIN
    payload_keys: HeldKeys | None = None
    payloads_of: OpenPayloads | None = None
    access: Access | None = None

    def __post_init__(self) -> None:
        if self.access and self.payloads.encrypted and self.payloads_of is None:
            raise ValueError("payloads_of must tell how other namespaces are sealed")
