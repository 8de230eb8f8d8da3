"""What every process of ours needs from the operating system."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Final

from cachemind.errors import CacheError

PR_SET_PDEATHSIG: Final = 1
"""Source: prctl(2)."""


def stop_with_parent(parent_pid: int) -> None:
    """Have the kernel send us SIGTERM when `parent_pid` dies, however it dies.

    Raises: `CacheError` where the parent is gone already, so nobody would stop us.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise CacheError(f"prctl failed: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent_pid:
        raise CacheError(f"parent process {parent_pid} is gone")
