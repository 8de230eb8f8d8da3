"""A lock that its process holds until it ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cachemind.errors import StoreLocked, StoreUnavailable


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file at `path`, which is made where it is not there.

    Raises: `StoreLocked` where another process holds it; `StoreUnavailable`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreUnavailable(f"{path}: {error}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise StoreLocked(f"{path}: another process holds it") from error
    try:
        yield
    finally:
        os.close(descriptor)
