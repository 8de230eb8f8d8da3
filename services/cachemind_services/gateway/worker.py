"""One gateway worker: the application under uvicorn, on sockets it inherited."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import uvicorn
import uvloop

from cachemind.core.policy import MS_PER_S, Policy, Volatile
from cachemind.core.token_bucket import Rate
from cachemind.types import Namespace, Principal, WriterId
from cachemind_services.bootstrap.gateway import (
    GatewayPorts,
    identify_if_up,
    open_gateway,
)
from cachemind_services.bootstrap.secret import read_secret
from cachemind_services.gateway.app import Gateway
from cachemind_services.gateway.as_of import Application
from cachemind_services.gateway.bounded_http import BoundedHttp
from cachemind_services.gateway.deps import (
    Access,
    GatewayDeps,
    GatewaySettings,
    OnWalFailure,
    WalAck,
)
from cachemind_services.gateway.limits import Limits
from cachemind_services.gateway.metrics import GatewayMetrics
from cachemind_services.settings import Settings

DRAIN_S: Final = 4
"""How long open requests may go on after SIGTERM; the log is flushed after that."""

FLIGHTS_S: Final = 2.0
"""How long upstream calls whose clients are gone may go on after that."""

BACKLOG: Final = 2048
METRICS_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"


def run(settings: Settings, fds: Sequence[int], number: int) -> int:
    """Serve on the inherited sockets `fds` until SIGTERM; return the exit code."""
    log = identify_if_up(settings)

    async def serve() -> int:
        ports = open_gateway(settings, log)
        gateway = Gateway(gateway_deps(settings, ports, number))
        return await serve_on(gateway, fds, gateway.draining)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve())


def gateway_deps(settings: Settings, ports: GatewayPorts, number: int) -> GatewayDeps:
    """Return what the application of worker `number` is built from."""
    shared = os.environ.get(METRICS_VARIABLE)
    return GatewayDeps(
        settings=_gateway_settings(settings, number),
        views=ports.views,
        wal=ports.wal,
        codec=ports.codec,
        embedder=ports.embedder,
        upstream=ports.upstream,
        clock=ports.clock,
        random=secrets.token_bytes,
        log_ends=ports.log_ends,
        past=ports.past,
        receipts=ports.receipts,
        payloads=ports.payloads,
        payload_keys=ports.payload_keys,
        payloads_of=ports.payloads_of,
        access=_access(settings, ports),
        metrics=GatewayMetrics(Path(shared) if shared else None),
    )


def _access(settings: Settings, ports: GatewayPorts) -> Access | None:
    if not settings.auth:
        return None
    return Access(
        tokens=ports.tokens,
        upstream=ports.upstream_credentials,
        limits=limits_of(settings),
    )


def limits_of(settings: Settings) -> Limits:
    """Return one worker's share of what a key may use up on this host."""
    workers = settings.workers
    rate = None
    if settings.key_requests_per_s:
        rate = Rate(
            per_s=settings.key_requests_per_s / workers,
            burst=max(1.0, settings.key_burst / workers),
        )
    streams = None
    if settings.key_streams:
        streams = max(1, settings.key_streams // workers)
    return Limits(rate=rate, streams=streams)


def _holds_nobody() -> None:
    """Have nothing to let go."""


async def serve_on(
    gateway: Application,
    fds: Sequence[int],
    draining: Callable[[], None] = _holds_nobody,
) -> int:
    """Serve on the inherited sockets `fds` until SIGTERM; return the exit code.

    `draining` is called first of all: requests under way are waited for.
    """
    server = _Server(
        uvicorn.Config(
            gateway,
            loop="none",
            http=BoundedHttp,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,  # upstream's own passes through; hits bring theirs
            proxy_headers=False,  # the caller's address decides nothing
            backlog=BACKLOG,
            timeout_graceful_shutdown=DRAIN_S,
        )
    )
    loop = asyncio.get_running_loop()

    def drain() -> None:
        draining()
        server.drain()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, drain)
    await server.serve(sockets=[socket.socket(fileno=os.dup(fd)) for fd in fds])
    return 0 if server.started else 1


class _Server(uvicorn.Server):
    """Uvicorn without its signal handling, which ends a clean stop by a signal."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def drain(self) -> None:
        self.should_exit = True


def _gateway_settings(settings: Settings, number: int) -> GatewaySettings:
    host = socket.gethostname() or "localhost"
    writer = f"gateway-{host}-{number}-{secrets.token_hex(4)}"
    return GatewaySettings(
        namespace=Namespace(settings.namespace),
        principal=Principal("local"),
        writer=WriterId(writer),
        secret=read_secret(settings),
        policy=_policy(settings),
        wal_ack=WalAck(settings.wal_ack),
        on_wal_failure=OnWalFailure(settings.on_wal_failure),
        wal_timeout_s=settings.wal_timeout_ms / MS_PER_S,
        embed_deadline_s=settings.embed_deadline_ms / MS_PER_S,
        drain_s=FLIGHTS_S,
        turns_file=settings.data_dir / "turns" if settings.workers > 1 else None,
        max_body_bytes=settings.max_body_bytes,
        max_cacheable_bytes=settings.max_cacheable_bytes,
        log_passed_on=settings.audit_mode,
    )


def _policy(settings: Settings) -> Policy:
    return Policy(
        semantic=settings.encoder != "off",
        threshold=settings.similarity_threshold,
        default_ttl_ms=settings.ttl_s * MS_PER_S,
        max_ttl_ms=settings.max_ttl_s * MS_PER_S,
        max_entry_bytes=settings.max_cacheable_bytes,
        volatile=Volatile.SHORT if settings.admit_volatile else Volatile.REFUSE,
        share_across_credentials=settings.share_across_credentials,
    )
