"""The sealed copy of receipts: checked, and its key exchanged."""

from __future__ import annotations

from collections.abc import Sequence

from cachemind.adapters.sealed_file import (
    FileReport,
    create_seal_key,
    read_seal_keys,
    verify_folder,
)
from cachemind_services.settings import Settings


def check_sealed(settings: Settings) -> Sequence[FileReport]:
    """Return what each file of the copy is worth, in order.

    Raises: `InvalidSetting`, `KeyRefused`, `StoreUnavailable`.
    """
    return list(verify_folder(settings.sealed_dir, read_seal_keys(settings.keys_dir)))


def rotate_seal_key(settings: Settings) -> str:
    """Make the key that seals from now on; return its id.

    The others stay, for what they have sealed. Raises: `InvalidSetting`,
    `KeyUnavailable`.
    """
    return create_seal_key(settings.keys_dir).key_id.hex()
