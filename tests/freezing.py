"""A process that is stopped in the middle of whatever it does."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

STOP_S = 10.0


def freeze(pid: int) -> None:
    """SIGSTOP a process; return once none of its threads runs any more.

    The signal alone does not say that: on a busy machine a broker whose other threads
    have not met it yet answers one more request.
    """
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + STOP_S
    while not all(map(_stands, Path(f"/proc/{pid}/task").glob("*/stat"))):
        assert time.monotonic() < deadline, f"process {pid} does not stop"
        time.sleep(0.001)


def _stands(stat: Path) -> bool:
    try:
        state = stat.read_text().rpartition(")")[2].split()[0]
    except OSError:  # that thread has ended
        return True
    return state in "TtZX"
