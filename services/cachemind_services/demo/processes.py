"""The processes of the demonstration: started, found, killed, stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cachemind.errors import CacheError
from cachemind_services.supervisor import own_command

STOP_S: Final = 15.0
POLL_S: Final = 0.1
FAILURES_FROM: Final = 300


@contextmanager
def running(
    log_file: Path, arguments: Sequence[str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run one `cachemind` command, its messages in `log_file`, until the block ends."""
    with log_file.open("ab") as log:
        process = subprocess.Popen(  # noqa: S603  # our own program
            own_command(*arguments),
            stdout=log,
            stderr=log,
            # Ctrl-C must reach us alone: we stop them.
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(
    url: str, process: subprocess.Popen[bytes], log_file: Path, timeout_s: float
) -> None:
    """Return once `url` answers 2xx.

    Raises: `CacheError` with the end of the log where the process ends, or takes
    longer than `timeout_s`.
    """
    until(
        lambda: process.poll() is not None or _answers(url),
        f"{url} did not answer; see {log_file}",
        timeout_s,
    )
    if process.poll() is not None:
        tail = log_file.read_text(errors="replace").splitlines()[-5:]
        raise CacheError("a process of the demo ended:\n" + "\n".join(tail))


def until(holds: Callable[[], bool], problem: str, timeout_s: float) -> None:
    """Return once `holds()`. Raises: `CacheError` past `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            raise CacheError(problem)
        time.sleep(POLL_S)


def kill_child(parent: int, role: str) -> int:
    """SIGKILL the child of `parent` whose command is `role`; return its pid."""
    pid = find_child(parent, role)
    if pid is None:
        raise CacheError(f"no {role} runs")
    os.kill(pid, signal.SIGKILL)
    return pid


def find_child(parent: int, role: str) -> int | None:
    """Return the process id of the child that runs `role`, None where none does."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            words = stat.with_name("cmdline").read_text().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == parent and role in words:
            return int(stat.parent.name)
    return None


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310  # loopback
            status: int = answer.status
    except (urllib.error.URLError, OSError):
        return False
    return status < FAILURES_FROM
