"""Ports on the loopback interface."""

from __future__ import annotations

import socket

from cachemind_services.broker.errors import PortTaken
from cachemind_services.broker.server_config import LOOPBACK


def is_free(host: str, port: int) -> bool:
    """Return whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Java does: a port whose old connections linger in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def free_port(host: str, *, avoid: int = 0) -> int:
    """Return a port that was free a moment ago and is not `avoid`."""
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
            port = int(probe.getsockname()[1])
        if port != avoid:
            return port


def choose_port(wanted: int, last: int | None) -> int:
    """Return `wanted`; for 0 the port used last if it is free, else any free one.

    Raises: `PortTaken` where a port was named and is in use.
    """
    if wanted:
        if not is_free(LOOPBACK, wanted):
            raise PortTaken(wanted)
        return wanted
    if last is not None and is_free(LOOPBACK, last):
        return last
    return free_port(LOOPBACK)
