"""Ports on the loopback interface."""

from __future__ import annotations

import secrets
import socket
from typing import Final

from cachemind_services.broker.errors import PortTaken
from cachemind_services.broker.server_config import LOOPBACK

_FIRST_PORT: Final = 20_000
_PORTS: Final = 12_000
"""Below the range that Linux and others give to outgoing connections, so that none of
those takes the port in the seconds until the JVM listens."""


def is_free(port: int) -> bool:
    """Return whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Java does: a port whose old connections linger in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def free_port(*, avoid: int = 0) -> int:
    """Return a port that was free a moment ago and is not `avoid`."""
    while True:
        port = _FIRST_PORT + secrets.randbelow(_PORTS)
        if port != avoid and is_free(port):
            return port


def choose_port(wanted: int, last: int | None) -> int:
    """Return `wanted`; for 0 the port used last if it is free, else any free one.

    Raises: `PortTaken` where a port was named and is in use.
    """
    if wanted:
        if not is_free(wanted):
            raise PortTaken(wanted)
        return wanted
    if last is not None and is_free(last):
        return last
    return free_port()
