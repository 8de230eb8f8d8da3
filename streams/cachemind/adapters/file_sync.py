"""Files and folders that are on disk before anyone relies on them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def flushed(path: Path) -> Iterator[IO[bytes]]:
    """Yield a new file to write; its bytes are on disk when the block ends."""
    with path.open("wb") as out:
        yield out
        out.flush()
        os.fsync(out.fileno())


def sync_folder(folder: Path) -> None:
    """Put the names in `folder` on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file: whoever reads it sees the old bytes or the new ones."""
    scratch = path.with_name(path.name + ".new")
    with flushed(scratch) as out:
        out.write(content)
    scratch.replace(path)
    sync_folder(path.parent)
