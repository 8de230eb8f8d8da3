"""Wrapped data keys in an object store: `<prefix>/<namespace>/<generation>.json`.

The bucket must not keep former versions of an object: a destroyed key would be among
them. Credentials and end points come from the vendors' own variables (`AWS_*`, ...).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore, from_url

from cachemind.adapters.data_key_folder import NAME, object_name, read_key
from cachemind.core.data_key import DataKey, encode_data_key
from cachemind.errors import InvalidSetting, KeyUnavailable
from cachemind.types import Namespace

if TYPE_CHECKING:  # they exist in its stubs alone
    from obstore.store import RetryConfig

_RETRY: Final[RetryConfig] = {
    "max_retries": 2,
    "retry_timeout": timedelta(seconds=10),
}


class DataKeyBucket:
    """A `DataKeyStore` below a URL such as `s3://bucket/prefix`."""

    def __init__(self, url: str) -> None:
        """Contact nothing yet. Raises: `InvalidSetting`."""
        self._url = url
        self._store = _opened(url)

    def keys(self, namespace: Namespace) -> Sequence[DataKey]:
        """Return every generation, the oldest first."""
        found = []
        with self._translated():
            for batch in obstore.list(self._store, namespace):
                for each in batch:
                    path = each["path"]
                    if NAME.match(path.rpartition("/")[2]):
                        found.append(path)
            raw = [(path, self._get(path)) for path in sorted(found)]
        return [read_key(path, content) for path, content in raw]

    def create(self, key: DataKey) -> bool:
        """Return whether the key is there now."""
        with self._translated():
            try:
                obstore.put(
                    self._store, _path(key), encode_data_key(key), mode="create"
                )
            except (AlreadyExistsError, FileExistsError):
                return False
        return True

    def destroy(self, stone: DataKey) -> None:
        """Put the stone in the key's place."""
        with self._translated():
            obstore.put(self._store, _path(stone), encode_data_key(stone))

    def _get(self, path: str) -> bytes:
        return bytes(obstore.get(self._store, path).bytes())

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError) as error:
            problem = f"{type(error).__name__}: {_first(error)}"
            raise KeyUnavailable(self._shown(), problem) from error

    def _shown(self) -> str:
        parts = urlsplit(self._url)  # never a user's name and password
        return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def _path(key: DataKey) -> str:
    return f"{key.namespace}/{object_name(key)}"


def _opened(url: str) -> ObjectStore:
    try:
        return from_url(url, retry_config=_RETRY)
    except (BaseError, OSError, ValueError) as error:
        raise InvalidSetting("data_keys_url", _first(error)) from error


def _first(error: BaseException) -> str:
    """Return the first line of a library's message, which goes on for pages."""
    return next(iter(str(error).splitlines()), type(error).__name__)[:300]
