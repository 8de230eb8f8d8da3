"""Starting a server for a measurement, and being sure that it is gone after."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

STOP_S = 15.0


def free_port() -> int:
    """Return a TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def running(
    argv: Sequence[str], environ: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process, then stop it with SIGTERM; SIGKILL where that does not do."""
    process = subprocess.Popen(argv, env=environ, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(url: str, timeout_s: float) -> None:
    """Return once `url` answers below 500. Raises: `TimeoutError`."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except urllib.error.HTTPError as error:
            if error.code < 500:
                return
        except OSError:
            time.sleep(0.05)
            continue
        time.sleep(0.05)
    raise TimeoutError(f"{url} did not answer in {timeout_s:.0f} s")
