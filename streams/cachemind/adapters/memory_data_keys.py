"""Wrapped data keys in memory, for unit tests and simulation."""

from __future__ import annotations

from collections.abc import Sequence

from cachemind.core.data_key import DataKey
from cachemind.errors import CacheError
from cachemind.types import Namespace


class MemoryDataKeys:
    """A `DataKeyStore`; `failure` is raised by every call while it is set."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Namespace, int], DataKey] = {}
        self.failure: CacheError | None = None

    def keys(self, namespace: Namespace) -> Sequence[DataKey]:
        """Return every generation, the oldest first."""
        self._fail()
        return [
            key for (whose, _), key in sorted(self._kept.items()) if whose == namespace
        ]

    def create(self, key: DataKey) -> bool:
        """Return whether the key is there now."""
        self._fail()
        place = key.namespace, key.generation
        return self._kept.setdefault(place, key) is key

    def destroy(self, stone: DataKey) -> None:
        """Put the stone in the key's place."""
        self._fail()
        self._kept[stone.namespace, stone.generation] = stone

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure
