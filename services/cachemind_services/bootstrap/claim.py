"""One supervisor of gateways a data folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cachemind.adapters.file_lock import exclusive
from cachemind.errors import InvalidSetting, StoreLocked
from cachemind_services.settings import Settings


@contextmanager
def gateway_claim(settings: Settings) -> Iterator[None]:
    """Hold the data folder for this command's gateway workers.

    They share files in it, which the next command empties. Raises: `InvalidSetting`
    where another command holds it; `StoreUnavailable`.
    """
    claim = exclusive(settings.data_dir / "gateway.lock")
    try:
        claim.__enter__()
    except StoreLocked as error:
        raise InvalidSetting(
            "data_dir", f"{settings.data_dir} is in use by another serve or gateway"
        ) from error
    try:
        yield
    finally:
        claim.__exit__(None, None, None)
