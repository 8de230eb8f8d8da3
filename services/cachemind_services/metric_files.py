"""The files in which the processes of one host share their Prometheus metrics.

prometheus_client names them after process ids. We name them after roles: a process
that starts again goes on counting in its predecessor's files, so that a child that
dies every half minute fills no disk, and what a dead process last said is removed.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from prometheus_client import values

from cachemind.errors import CacheError

VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
FILE_BYTES: Final = 262_144
"""Several times what our metrics need; taken from the disk when a process starts.

The files are written through memory: where the disk has no room for a page of a
sparse file, the kernel kills the writer (SIGBUS).
"""

_LIVE: Final = ("gauge_livemax", "gauge_livesum")
_NOTHING_USED: Final = bytes(8)
"""The begin of a file says how much of it is used."""

_KINDS: Final = ("counter", "histogram", *_LIVE)


def share_as(role: str) -> None:
    """Keep this process's metrics in the files of `role`, if any are shared.

    Call it before the first metric is made. `role` has no underscore. Raises:
    `CacheError` where the disk has no room for them.
    """
    folder = os.environ.get(VARIABLE)
    if folder is None:
        return
    forget_gauges(Path(folder), role)
    for kind in _KINDS:
        _reserve(Path(folder) / f"{kind}_{role}.db")
    values.ValueClass = values.MultiProcessValue(process_identifier=lambda: role)  # type: ignore[no-untyped-call]  # prometheus_client has no types for it


def forget_gauges(folder: Path, role: str) -> None:
    """Drop what a process of `role` last said of itself; keep what it counted.

    The files stay, as the disk may have no room for them any more.
    """
    for kind in _LIVE:
        with (
            suppress(FileNotFoundError),
            (folder / f"{kind}_{role}.db").open("r+b") as f,
        ):
            f.write(_NOTHING_USED)


def _reserve(path: Path) -> None:
    try:
        with path.open("ab") as file:
            os.posix_fallocate(file.fileno(), 0, FILE_BYTES)
    except OSError as error:
        problem = error.strerror or str(error)
        raise CacheError(f"no metrics in {path.parent}: {problem}") from error
