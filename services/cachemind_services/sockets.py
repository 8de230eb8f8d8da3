"""Listening sockets, bound once by the parent and shared by its gateway workers."""

from __future__ import annotations

import errno
import socket
import stat
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cachemind.errors import InvalidSetting

BACKLOG: Final = 2048


def bind_tcp(host: str, port: int) -> socket.socket:
    """Return a listening TCP socket; port 0 picks a free one.

    Raises: `InvalidSetting` naming `host` or `port`.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise InvalidSetting("host", f"cannot be resolved: {error.strerror}") from error
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise InvalidSetting(
                "port", f"{port} is taken by another process"
            ) from error
        raise InvalidSetting("host", f"cannot listen: {error.strerror}") from error
    return listener


def require_loopback(host: str) -> None:
    """Do nothing for an address that only this machine reaches.

    Raises: `InvalidSetting` naming `host`.
    """
    try:
        found = socket.getaddrinfo(
            host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as error:
        raise InvalidSetting("host", f"cannot be resolved: {error.strerror}") from error
    for *_, address in found:
        if not ip_address(str(address[0]).partition("%")[0]).is_loopback:
            raise InvalidSetting(
                "host",
                f"{host} is reached from other machines, and nobody is asked for a "
                "key: switch CACHEMIND_AUTH on (see `cachemind keys`), or say "
                "--insecure",
            )


def bind_unix(path: Path) -> socket.socket:
    """Return a listening Unix socket; one left by a dead process is replaced.

    Raises: `InvalidSetting` naming `uds`.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.exists():
            _remove_if_dead(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        listener.bind(str(path))
        listener.listen(BACKLOG)
    except (OSError, InvalidSetting) as error:
        listener.close()
        if isinstance(error, InvalidSetting):
            raise
        problem = error.strerror or str(error)
        raise InvalidSetting("uds", f"cannot listen: {problem}") from error
    return listener


def _remove_if_dead(path: Path) -> None:
    if not stat.S_ISSOCK(path.stat().st_mode):
        raise InvalidSetting("uds", f"{path} exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise InvalidSetting("uds", f"{path} is served by another process")


def url_of(listener: socket.socket) -> str:
    """Return the base URL that reaches a TCP `listener`."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104  # compared, not bound
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
