"""The guard of a broker whose starter was killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from cachemind_services.broker import jvm
from tests.integration.serving import eventually

STUBBORN = "import signal,time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
STARTER = """
import subprocess, sys, time
guard, grace, child = sys.argv[1:]
with open(guard) as held:
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", guard, grace, str(held.fileno()),
         sys.executable, "-c", child],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(held.fileno(),),
        start_new_session=True,
    )
    print(process.stdout.readline().decode(), end="", flush=True)
    time.sleep(60)
"""


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def ignores_sigterm(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    mask = int(status.partition("SigIgn:")[2].split()[0], 16)
    return bool(mask >> (signal.SIGTERM - 1) & 1)


def test_a_broker_that_does_not_stop_is_soon_gone_when_its_starter_was_killed() -> None:
    grace = str(jvm._ORPHAN_GRACE_S)
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, str(jvm._GUARD), grace, STUBBORN],
        stdout=subprocess.PIPE,
    ) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        eventually(lambda: ignores_sigterm(pid))
        starter.kill()
    eventually(lambda: not running(pid), 4)
