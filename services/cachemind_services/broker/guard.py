"""Runs one command and ends it when the parent process is gone.

Started as a script: `python -I -S guard.py GRACE_S LOCK_FD COMMAND...`. The parent
holds the other end of our standard input; when it ends, however it ends, we read end
of file. A parent-death signal alone would fire when the starting *thread* ends, and
exists only on Linux; we use it for ourselves, being single-threaded at that point.

The first line on standard output is the command's process id.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import threading

_PR_SET_PDEATHSIG = 1
_ORPHAN_CHECK_S = 1.0


def _die_with_guard() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _await_orphaned(parent: int) -> None:
    # A forked sibling may hold the pipe open, hence the look at the parent's id.
    while os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], _ORPHAN_CHECK_S)
        if readable and not os.read(0, 1):
            return


def _end(child: subprocess.Popen[bytes], grace_s: float) -> None:
    child.terminate()
    try:
        child.wait(grace_s)
    except subprocess.TimeoutExpired:
        child.kill()


def main(argv: list[str]) -> int:
    """Run the command until it ends or our parent does; return its exit code."""
    grace_s, lock_fd, command = float(argv[0]), int(argv[1]), argv[2:]
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = subprocess.Popen(  # noqa: S603 - the broker's own command line
        command,
        stdin=subprocess.DEVNULL,
        stdout=2,
        pass_fds=(lock_fd,),
        preexec_fn=_die_with_guard,  # noqa: PLW1509 - single-threaded here
    )
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    sys.stdout.write(f"{child.pid}\n")
    sys.stdout.flush()

    def watch() -> None:
        _await_orphaned(parent)
        _end(child, grace_s)

    threading.Thread(target=watch, daemon=True).start()
    code = child.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
