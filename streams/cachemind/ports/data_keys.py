"""Where the wrapped data keys of namespaces are kept."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from cachemind.core.aead import Aead as Aead
from cachemind.core.data_key import DataKey
from cachemind.types import Namespace


class DataKeyStore(Protocol):
    """Wrapped data keys, shared by all hosts that serve a namespace. Any thread.

    Every method raises `KeyUnavailable` where the place does not answer.
    """

    def keys(self, namespace: Namespace) -> Sequence[DataKey]:
        """Return every generation, the oldest first, destroyed ones too.

        Raises: `KeyRefused` where one cannot be read as what it should be.
        """
        ...

    def create(self, key: DataKey) -> bool:
        """Return whether the key is there now: False where its generation is taken.

        Of many hosts that try at once, one succeeds.
        """
        ...

    def destroy(self, stone: DataKey) -> None:
        """Put a destroyed key in the place of the one that lived; it is gone then."""
        ...


class HeldKeys(Protocol):
    """The data keys of one namespace that a process has at hand. Any thread."""

    def shredded(self, key_ids: Collection[str]) -> bool:
        """Forget keys for good; return whether any was at hand. Does not block."""
        ...

    def forget(self) -> None:
        """Forget every key, until the next `refresh`. Does not block."""
        ...

    def refresh(self) -> bool:
        """Take in what is kept; return whether a key went. Blocks.

        Raises: `KeyUnavailable`, `KeyRefused`; what is at hand stays.
        """
        ...

    def close(self) -> None:
        """Leave the provider."""
        ...
