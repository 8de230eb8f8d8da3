"""Wrapped data keys in a folder: `<namespace>/<generation>.json`.

A key that is destroyed is replaced by its stone, and then its bytes are overwritten.
What a disk, a file system or a backup keeps of overwritten bytes is beyond this
program; it is a wrapped key, of no use to who does not have the wrapping key.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cachemind.adapters.file_sync import sync_folder
from cachemind.adapters.private_file import create_private, read_private
from cachemind.core.data_key import (
    GENERATION_DIGITS,
    DataKey,
    decode_data_key,
    encode_data_key,
)
from cachemind.errors import KeyRefused, KeyUnavailable, UndecodableRecord
from cachemind.types import Namespace

NAME: Final = re.compile(rf"[0-9]{{{GENERATION_DIGITS}}}\.json\Z", re.ASCII)


class DataKeyFolder:
    """A `DataKeyStore` in a folder that nobody else may look into."""

    def __init__(self, folder: Path) -> None:
        """Touch nothing yet."""
        self._folder = folder

    def keys(self, namespace: Namespace) -> Sequence[DataKey]:
        """Return every generation, the oldest first."""
        folder = self._folder / namespace
        try:
            found = sorted(path for path in folder.iterdir() if NAME.match(path.name))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unavailable(folder, error) from error
        return [read_key(str(path), read_private(path)) for path in found]

    def create(self, key: DataKey) -> bool:
        """Return whether the key is there now, and on disk."""
        path = self._path(key)
        try:
            create_private(path, encode_data_key(key))
        except KeyRefused:
            return False
        return True

    def destroy(self, stone: DataKey) -> None:
        """Put the stone there, then overwrite what was; on disk on return."""
        path = self._path(stone)
        scratch = path.with_name(f".{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
        create_private(scratch, encode_data_key(stone))
        try:
            with path.open("r+b") as former:
                scratch.replace(path)
                sync_folder(path.parent)
                former.write(b"\0" * os.fstat(former.fileno()).st_size)
                former.flush()
                os.fsync(former.fileno())
        except OSError as error:
            raise _unavailable(path, error) from error
        finally:
            scratch.unlink(missing_ok=True)

    def _path(self, key: DataKey) -> Path:
        return self._folder / key.namespace / object_name(key)


def object_name(key: DataKey) -> str:
    """Return the name of a generation's file or object."""
    return f"{key.generation:0{GENERATION_DIGITS}d}.json"


def read_key(where: str, raw: bytes) -> DataKey:
    """Return the data key in `raw`. Raises: `KeyRefused` naming `where`."""
    try:
        return decode_data_key(raw)
    except UndecodableRecord as error:
        raise KeyRefused(where, error.reason) from error


def _unavailable(path: Path, error: OSError) -> KeyUnavailable:
    return KeyUnavailable(str(path), f"the disk does not do it: {error.strerror}")
