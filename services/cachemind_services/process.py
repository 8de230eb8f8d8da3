"""What every process of ours needs from the operating system."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import sys
from typing import Final

from cachemind.errors import CacheError

PR_SET_PDEATHSIG: Final = 1
"""Source: prctl(2)."""

BACKGROUND_NICE: Final = 10
"""A tenth of the share of others; the whole of what they leave. Source: sched(7)."""

COLLECT_AFTER: Final = 50_000
"""Allocations, less frees, between two collections of the youngest objects."""


def stop_with_parent(parent_pid: int) -> None:
    """Have the kernel send us SIGTERM when `parent_pid` dies, however it dies.

    Raises: `CacheError` where the parent is gone already, so nobody would stop us.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise CacheError(f"prctl failed: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent_pid:
        raise CacheError(f"parent process {parent_pid} is gone")


def end_on_sigterm() -> None:
    """Have SIGTERM end the process in order, with 0, until a loop takes it over.

    A service that is stopped while it starts was stopped, it did not fail.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


def open_many_files() -> None:
    """Open as many files as the system lets us.

    What a process begins with is often 1024, for programs that use select(2).
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def give_way() -> None:
    """Let who answers callers have the processor first, where it is short.

    For what happens behind an answer: signing it, keeping its receipt.
    """
    os.nice(BACKGROUND_NICE)


def tune_collector() -> None:
    """Spare long-lived objects, and the many small ones of one batch, from the GC.

    Everything alive now stays for the process's life; what comes later is mostly
    freed by its reference count. The default threshold of 700 costs a third of the
    appends a second.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 50)
