"""The process that answers commands from Kafka: the gateway's pieces without HTTP."""

from __future__ import annotations

import secrets
import socket
from dataclasses import replace

from cachemind.core.grant_topics import SHARED
from cachemind.ports import LogWriter
from cachemind.types import Namespace, WriterId
from cachemind_services.bootstrap import requests
from cachemind_services.bootstrap.command_ports import CommandPorts
from cachemind_services.gateway.command_desk import CommandDesk, DeskPorts
from cachemind_services.gateway.deps import GatewayDeps, OnWalFailure, WalAck
from cachemind_services.gateway.held_upstream import HeldUpstream
from cachemind_services.gateway.worker import gateway_deps
from cachemind_services.settings import Settings


def run(settings: Settings, failpoint: str = "") -> int:
    """Answer until SIGTERM; return the exit code."""
    return requests.run(settings, desk, failpoint)


def desk(settings: Settings, ports: CommandPorts) -> CommandDesk:
    """Return what decides the commands of one partition.

    Nothing is answered that the log does not take, and nobody outside is asked while
    a transaction is open.
    """

    def opened(wal: LogWriter) -> GatewayDeps:
        deps = gateway_deps(settings, ports.open(wal), 0)
        ours = replace(
            deps.settings,
            principal=SHARED,
            wal_ack=WalAck.ACKED,
            on_wal_failure=OnWalFailure.REFUSE,
            turns_file=None,
        )
        return replace(deps, settings=ours, upstream=HeldUpstream(), past=None)

    def of(deps: GatewayDeps, namespace: Namespace) -> GatewayDeps:
        # A writer of its own each time: what a transaction took back has used up
        # numbers of the former one's sequence.
        writer = f"requests-{socket.gethostname()}-{secrets.token_hex(6)}"
        named = replace(deps.settings, namespace=namespace, writer=WriterId(writer))
        if namespace == deps.settings.namespace:
            return replace(deps, settings=named)
        keys = ports.payloads(namespace)
        return replace(
            deps, settings=named, payloads=keys.payloads, payload_keys=keys.keys
        )

    return CommandDesk(DeskPorts(open=opened, of=of, upstream=ports.upstream))
