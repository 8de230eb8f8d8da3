"""Keeps the data keys of one namespace at hand: finds, makes and forgets them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence
from typing import Final

from cachemind.core.aead import Random
from cachemind.core.data_key import (
    DATA_KEY_BYTES,
    DataKey,
    key_id_of,
    next_generation,
    wrapping_context,
)
from cachemind.core.payload_cipher import PayloadCipher
from cachemind.errors import KeyRefused
from cachemind.ports import Clock, KeyWrapper
from cachemind.ports.data_keys import DataKeyStore
from cachemind.types import Namespace

logger = logging.getLogger(__name__)

_ATTEMPTS: Final = 8
"""To make a key, while other hosts make theirs."""


class PayloadKeys:
    """Brings a cipher's keys in line with the store of keys. Any thread may ask.

    What is sealed with is the newest living key that this wrapper has wrapped: hosts
    with one wrapper agree on it, and one with another wrapper makes a key of its own.
    Where there is none, one is made if `makes`.
    """

    def __init__(
        self,
        namespace: Namespace,
        store: DataKeyStore,
        wrapper: KeyWrapper,
        cipher: PayloadCipher,
        clock: Clock,
        random: Random,
        *,
        makes: bool,
    ) -> None:
        self._namespace = namespace
        self._store = store
        self._wrapper = wrapper
        self._cipher = cipher
        self._clock = clock
        self._random = random
        self._makes = makes
        self._lock = threading.Lock()
        self._shredded: frozenset[str] = frozenset()
        self._refused: set[str] = set()

    def shredded(self, key_ids: Collection[str]) -> bool:
        """Forget the keys that the log says are shredded; return whether any was there.

        They do not come back, whatever the store of keys still holds.
        """
        with self._lock:
            self._shredded |= frozenset(key_ids)
            kept = set(self._cipher.key_ids) - self._shredded
            return self._cipher.keep(kept)

    def forget(self) -> None:
        """Forget every key, until the next `refresh`."""
        with self._lock:
            self._cipher.keep(())

    def refresh(self) -> bool:
        """Take in what the store of keys holds; return whether a key went.

        Blocks. Raises: `KeyUnavailable`, `KeyRefused` where a key is not to be had;
        those that are stay at hand.
        """
        went = False
        for _ in range(_ATTEMPTS):
            found = self._store.keys(self._namespace)
            living = [key for key in found if key.lives]
            went = self._take(living) or went
            current = self._newest_own(living)
            if current is not None or not self._makes:
                return went
            self._make(found)
        raise KeyRefused(self._namespace, f"no data key after {_ATTEMPTS} attempts")

    def close(self) -> None:
        """Leave the wrapper's provider."""
        self._wrapper.close()

    def _take(self, living: Sequence[DataKey]) -> bool:
        """Have the living keys at hand and no other."""
        known = self._cipher.key_ids
        fresh = {
            key.key_id: self._unwrapped(key)
            for key in living
            if key.key_id not in known and key.key_id not in self._shredded
        }
        with self._lock:
            wanted = {key.key_id for key in living} - self._shredded
            went = self._cipher.keep(wanted)
            for key_id, data_key in fresh.items():
                if data_key is not None and key_id in wanted:
                    self._cipher.put(key_id, data_key)
            own = self._newest_own(living)
            usable = own is not None and own.key_id in self._cipher.key_ids
            self._cipher.seal_with(own.key_id if own is not None and usable else None)
        return went

    def _newest_own(self, living: Sequence[DataKey]) -> DataKey | None:
        own = [
            key
            for key in living
            if key.wrapper_id == self._wrapper.wrapper_id
            and key.key_id not in self._shredded
        ]
        return max(own, key=lambda key: key.generation, default=None)

    def _unwrapped(self, key: DataKey) -> bytes | None:
        """Return the key; None, said once, where this wrapper does not open it."""
        context = wrapping_context(self._namespace, key.key_id)
        try:
            data_key = self._wrapper.unwrap(key.wrapped, context)
            if key_id_of(key.generation, data_key) != key.key_id:
                raise KeyRefused(key.key_id, "another key was wrapped under its id")
        except KeyRefused as error:
            if key.key_id not in self._refused:
                self._refused.add(key.key_id)
                logger.warning("a data key cannot be used here: %s", error)
            return None
        return data_key

    def _make(self, found: Sequence[DataKey]) -> None:
        """Make the next generation, unless another host is first."""
        generation = next_generation(found)
        data_key = self._random(DATA_KEY_BYTES)
        key_id = key_id_of(generation, data_key)
        made = DataKey(
            namespace=self._namespace,
            generation=generation,
            key_id=key_id,
            wrapper_id=self._wrapper.wrapper_id,
            wrapped=self._wrapper.wrap(
                data_key, wrapping_context(self._namespace, key_id)
            ),
            created_at_ns=self._clock.now_ns(),
        )
        if self._store.create(made):
            logger.info("data key %s was made", key_id)
