"""Putting another store in the place of one, whole, whatever is killed when.

1. The new store is made as `<store>.part`.
2. It is on disk and whole: renamed to `<store>.new`. From here on it will be the store.
3. The store there is becomes `<store>.before`, the new one `<store>`.
4. Once the new one is caught up, `<store>.before` goes.

A start finds out what was under way by the names (`settle`). The store must not be
open in this process; readers in others see that it has moved and open it anew. They
do not follow it by its path between the two renames (see `doorbell`).
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cachemind.adapters.doorbell import NAME as DOORBELL
from cachemind.adapters.doorbell import readers_held_off
from cachemind.adapters.file_sync import sync_folder
from cachemind.errors import StoreUnavailable

CURRENT: Final = "CURRENT"
_IMMUTABLE: Final = frozenset({".sst", ".blob"})
"""What RocksDB never writes to again, so that two stores may share it."""

_NO_LINK: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK})
"""How a file system says that it has no room for a link."""


def _go_on(failpoint: str) -> None:
    """Do not die here."""


def replace_store(path: Path, fill: Callable[[Path], None]) -> None:
    """Put what `fill` makes in a new, empty folder in the place of the store at `path`.

    Raises: `StoreUnavailable`, and what `fill` raises: then nothing has changed.
    """
    with _translated(path):
        part = begin(path)
        part.mkdir(parents=True)
        fill(part)
        decide(path)
    settle(path)


def begin(path: Path) -> Path:
    """Return where to make what may replace the store at `path`; nothing is there."""
    part = _beside(path, "part")
    shutil.rmtree(part, ignore_errors=True)
    return part


def decide(path: Path) -> None:
    """Say that what was made is whole: from here on it will be the store at `path`.

    Raises: `StoreUnavailable`.
    """
    part, new = _beside(path, "part"), _beside(path, "new")
    with _translated(path):
        sync_folder(part)
        shutil.rmtree(new, ignore_errors=True)
        part.rename(new)
        sync_folder(path.parent)


def settle(path: Path, failpoint: Callable[[str], None] = _go_on) -> None:
    """Finish a replacement that was cut off; where none was decided, forget it.

    Raises: `StoreUnavailable`.
    """
    new, before = _beside(path, "new"), _beside(path, "before")
    begin(path)
    if not new.exists():
        return
    with _translated(path), readers_held_off(path):
        if path.exists():
            shutil.rmtree(before, ignore_errors=True)
            path.rename(before)
        failpoint("shadow.moved")
        new.rename(path)
        sync_folder(path.parent)


def forget_before(path: Path) -> None:
    """Remove the store that was replaced, where there is one."""
    shutil.rmtree(_beside(path, "before"), ignore_errors=True)


def is_empty(path: Path) -> bool:
    """Return whether there is no store at `path`."""
    return not (path / CURRENT).exists()


def link_files(source: Path, names: list[str], target: Path) -> None:
    """Bring a checkpoint's files into `target`, by hard link where that is safe.

    Files that the new owner will write to are copied, and so is what is on another
    file system. Raises: `OSError`.
    """
    for name in names:
        if name == DOORBELL:
            continue  # the owner makes its own, by which readers see the change
        one, other = source / name, target / name
        if one.suffix in _IMMUTABLE:
            try:
                os.link(one, other)
                continue
            except OSError as error:
                if error.errno not in _NO_LINK:
                    raise
        shutil.copyfile(one, other)


def _beside(path: Path, word: str) -> Path:
    return path.with_name(f"{path.name}.{word}")


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"{path}: {error}") from error
