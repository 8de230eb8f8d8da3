"""`cachemind serve` as a user runs it, with handles to break it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.running import free_port, wait_for

READY_S = 120.0


@dataclass
class Serving:
    """A running `cachemind serve`."""

    url: str
    data_dir: Path
    process: subprocess.Popen[bytes]
    started_s: float = 0.0

    def get(self, target: str) -> Any:
        """Return the parsed JSON of a GET."""
        with urllib.request.urlopen(self.url + target, timeout=10) as answer:
            return json.load(answer)

    def pid_of(self, role: str) -> int:
        """Return the process id of a child whose command is `role`."""
        for pid in self.pids_of(role):
            return pid
        raise LookupError(f"no child runs {role}")

    def pids_of(self, role: str) -> list[int]:
        """Return the process ids of the children whose command is `role`."""
        return [pid for pid in _children(self.process.pid) if role in _words(pid)]

    def runs(self, role: str) -> bool:
        """Return whether a child runs `role`."""
        try:
            return self.pid_of(role) > 0
        except LookupError:
            return False

    def kill(self, role: str) -> int:
        """SIGKILL the child that runs `role`; return the process id it had."""
        pid = self.pid_of(role)
        os.kill(pid, signal.SIGKILL)
        return pid

    def kill_kafka(self, broker: int) -> None:
        """SIGKILL the Java process below the process `broker`."""
        for pid in _children(broker):
            os.kill(pid, signal.SIGKILL)

    def descendants(self) -> set[int]:
        """Return the process ids below the supervisor."""
        found: set[int] = set()
        waiting = [self.process.pid]
        while waiting:
            below = _children(waiting.pop())
            found.update(below)
            waiting.extend(below)
        return found

    def wait_ready(self, timeout_s: float = READY_S) -> None:
        """Return once the gateway says that it is ready."""
        wait_for(self.url + "/readyz", timeout_s)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.terminate()
        return self.process.wait(15)


@contextmanager
def serving(upstream: str, data_dir: Path, *flags: str) -> Iterator[Serving]:
    """Run `cachemind serve` in front of `upstream` until the block ends."""
    port = free_port()
    argv = [sys.executable, "-m", "cachemind_services.cli.main", "serve"]
    argv += ["--upstream", upstream, "--port", str(port), "--data-dir", str(data_dir)]
    process = subprocess.Popen([*argv, *flags])
    served = Serving(f"http://127.0.0.1:{port}", data_dir, process)
    began = time.monotonic()
    try:
        served.wait_ready()
        served.started_s = time.monotonic() - began
        yield served
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def run_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one `cachemind` command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "cachemind_services.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )


def eventually(check: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Return once `check` holds. Raises: `AssertionError` past the time."""
    deadline = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < deadline, "it did not come to hold in time"
        time.sleep(0.05)


def _children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == parent:
            found.append(int(stat.parent.name))
    return found


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
