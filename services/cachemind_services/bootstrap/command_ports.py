"""The adapters that commands of the cache are decided with, in one process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import overload

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import LogIdentity
from cachemind.adapters.registered_later import RegisteredLater
from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rocks_view import RocksView
from cachemind.adapters.upstream_http import HttpUpstream
from cachemind.errors import LogUnavailable, UpstreamUnavailable
from cachemind.ports import (
    Embedder,
    LogWriter,
    Upstream,
    UpstreamRequest,
    UpstreamResponse,
)
from cachemind.types import EncoderId, Namespace, Partition
from cachemind_services.bootstrap.gateway import (
    WAIT_S,
    GatewayPorts,
    log_ends,
    open_encoder,
    upstream_timeouts,
    view_scratch,
)
from cachemind_services.bootstrap.log import (
    codec_of,
    kafka_of,
    store_identity,
    store_path,
    topics_of,
)
from cachemind_services.bootstrap.past import StoredPast
from cachemind_services.bootstrap.payloads import OpenPayloads, open_payloads
from cachemind_services.bootstrap.receipts import open_receipt_view
from cachemind_services.bootstrap.upstream_credentials import (
    read_upstream_credentials,
)
from cachemind_services.settings import Settings


class CommandPorts:
    """What all desks of a process share; make it inside the running event loop."""

    def __init__(self, settings: Settings, log: LogIdentity) -> None:
        """Contact nobody yet. Raises: `InvalidSetting`."""
        self._settings = settings
        self._log = log
        self._memory = RocksMemory()
        self._opening = threading.Lock()
        self._embedder: Embedder | None = None
        self._looked_for_embedder = False
        kafka, wal = kafka_of(settings), topics_of(settings).wal.name
        self._ends = log_ends(
            KafkaReader(kafka, wal, request_s=WAIT_S), settings.partitions
        )
        self._credentials = read_upstream_credentials(settings.upstream_credentials)
        self.upstream: Upstream = _NoUpstream()
        if settings.upstream:
            self.upstream = HttpUpstream(settings.upstream, upstream_timeouts(settings))

    def open(self, wal: LogWriter) -> GatewayPorts:
        """Return the ports of one tenure, whose events go to `wal`; takes seconds.

        Raises: `InvalidSetting`, `LogUnavailable` where the schema registry is away.
        """
        opened = open_payloads(self._settings, makes=True)
        return GatewayPorts(
            views=_Views(self._settings, self._log, self._memory),
            wal=wal,
            codec=RegisteredLater(codec_of(self._settings)),
            embedder=self._one_embedder(),
            upstream=self.upstream,
            clock=SystemClock(),
            log_ends=self._ends,
            past=_no_past,
            receipts=open_receipt_view(self._settings, view_scratch(self._settings)),
            payloads=opened.payloads,
            payload_keys=opened.keys,
            upstream_credentials=self._credentials,
        )

    def payloads(self, namespace: Namespace) -> OpenPayloads:
        """Return how a namespace's payloads are kept. Raises: `InvalidSetting`."""
        return open_payloads(
            replace(self._settings, namespace=str(namespace)), makes=True
        )

    async def close(self) -> None:
        """Leave upstream."""
        await self.upstream.close()

    def _one_embedder(self) -> Embedder | None:
        with self._opening:
            if not self._looked_for_embedder:
                found = open_encoder(self._settings)
                self._embedder = None if found is None else _InTurn(found)
                self._looked_for_embedder = True
            return self._embedder


class _InTurn:
    """An embedder for several threads."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._turn = threading.Lock()

    @property
    def encoder_id(self) -> EncoderId:
        return self._embedder.encoder_id

    @property
    def dimensions(self) -> int:
        return self._embedder.dimensions

    def embed(self, text: str) -> bytes | None:
        with self._turn:
            return self._embedder.embed(text)


class _Views(Sequence[RocksView]):
    """A view of every partition's store, made when it is first looked at."""

    def __init__(
        self, settings: Settings, log: LogIdentity, memory: RocksMemory
    ) -> None:
        self._settings = settings
        self._log = log
        self._memory = memory
        self._made: dict[int, RocksView] = {}

    def __len__(self) -> int:
        return self._settings.partitions

    @overload
    def __getitem__(self, index: int) -> RocksView: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[RocksView]: ...

    def __getitem__(self, index: int | slice) -> RocksView | Sequence[RocksView]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        if index not in self._made:
            self._made[index] = RocksView(
                store_path(self._settings, index),
                self._memory,
                identity=store_identity(self._settings, self._log, index),
                scratch=view_scratch(self._settings),
            )
        return self._made[index]


class _NoUpstream:
    """Where no model server is named: look-ups are answered, completions are not."""

    def send(self, request: UpstreamRequest) -> _NoAnswer:
        del request
        return _NoAnswer()

    async def close(self) -> None:
        """Do nothing: there are no connections."""


class _NoAnswer:
    async def __aenter__(self) -> UpstreamResponse:
        raise UpstreamUnavailable("no upstream is named by --upstream", status=502)

    async def __aexit__(self, *failure: object) -> None:
        """Do nothing: it was never entered."""


def _no_past(partition: Partition) -> StoredPast:
    raise LogUnavailable(f"the past of partition {partition} is not shown here")
