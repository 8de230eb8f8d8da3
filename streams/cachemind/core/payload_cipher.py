"""Seals and opens the payloads of one namespace with the data keys at hand."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from cachemind.core.aead import Aead, AeadOf, Random
from cachemind.core.sealed_payload import (
    MOST_SEALED,
    NONCE_BYTES,
    SALT_BYTES,
    Kind,
    Payload,
    Unreadable,
    blinded,
    bound_before,
    join,
    pack_payload,
    split,
    subkey,
    unpack_payload,
    unpack_response,
)
from cachemind.errors import PayloadUnreadable
from cachemind.types import ExactKey, Namespace, Sha256

MOST_OPENED: Final = 4_096
"""Subkeys kept at hand: one a writer process that ever sealed what is read."""


@dataclass(slots=True)
class _Subkey:
    """A cipher with what is authenticated beside the exact key, made once."""

    key_id: bytes
    salt: bytes
    aead: Aead
    before: dict[Kind, bytes]
    sealed: int = 0


class PayloadCipher:
    """The data keys of one namespace, unwrapped. Any thread may ask."""

    def __init__(
        self,
        namespace: Namespace,
        aead_of: AeadOf,
        random: Random,
        most_sealed: int = MOST_SEALED,
    ) -> None:
        self._namespace = namespace
        self._aead_of = aead_of
        self._random = random
        self._most_sealed = most_sealed
        self._data_keys: dict[bytes, bytes] = {}
        self._opened: dict[tuple[bytes, bytes], _Subkey] = {}
        self._current: _Subkey | None = None

    @property
    def key_ids(self) -> Collection[str]:
        """Return the ids of the keys at hand."""
        return {key_id.decode() for key_id in tuple(self._data_keys)}

    @property
    def current(self) -> str | None:
        """Return the id of the key that is sealed with, None for none."""
        current = self._current
        return None if current is None else current.key_id.decode()

    def put(self, key_id: str, data_key: bytes) -> None:
        """Have a key at hand."""
        self._data_keys[key_id.encode()] = data_key

    def seal_with(self, key_id: str | None) -> None:
        """Seal with that key from now on, which is at hand; with None seal nothing."""
        if key_id == self.current:
            return
        self._current = None if key_id is None else self._fresh(key_id.encode())

    def keep(self, key_ids: Collection[str]) -> bool:
        """Forget every other key; return whether there was one."""
        kept = {key_id.encode() for key_id in key_ids}
        gone = [each for each in tuple(self._data_keys) if each not in kept]
        for each in gone:
            self._data_keys.pop(each, None)
        current = self._current
        if current is not None and current.key_id not in kept:
            self._current = None
        if gone:
            for pair in tuple(self._opened):
                if pair[0] not in kept:
                    self._opened.pop(pair, None)
        return bool(gone)

    def seal(self, key: ExactKey, payload: Payload) -> bytes:
        """Return a payload sealed for the entry at `key`.

        Raises: `PayloadUnreadable` where no key is at hand.
        """
        return self._seal(Kind.PAYLOAD, key, pack_payload(payload))

    def seal_vector(self, key: ExactKey, vector: bytes) -> bytes:
        """Return a vector sealed: an even number of bytes, as a vector's own is.

        Raises: `PayloadUnreadable` where no key is at hand.
        """
        return self._seal(Kind.VECTOR, key, vector)

    def open(self, key: ExactKey, raw: bytes) -> Payload:
        """Return what was sealed for the entry at `key`.

        Raises: `PayloadUnreadable`.
        """
        return unpack_payload(self._open(Kind.PAYLOAD, key, raw))

    def open_response(self, key: ExactKey, raw: bytes) -> bytes:
        """Return only the response of what was sealed: what a hit needs.

        Raises: `PayloadUnreadable`.
        """
        return unpack_response(self._open(Kind.PAYLOAD, key, raw))

    def open_vector(self, key: ExactKey, raw: bytes) -> bytes:
        """Return the vector of the entry at `key`. Raises: `PayloadUnreadable`."""
        return self._open(Kind.VECTOR, key, raw)

    def blind(self, digest: Sha256) -> Sha256:
        """Return a hash that only who has the key can compare with a guess.

        Raises: `PayloadUnreadable` where no key is at hand.
        """
        current = self._current
        data_key = None if current is None else self._data_keys.get(current.key_id)
        if data_key is None:
            raise PayloadUnreadable(Unreadable.NO_KEY)
        return blinded(data_key, digest)

    def _seal(self, kind: Kind, key: ExactKey, content: bytes) -> bytes:
        current = self._current
        if current is None:
            raise PayloadUnreadable(Unreadable.NO_KEY)
        if current.sealed >= self._most_sealed:
            current = self._current = self._fresh(current.key_id)
        current.sealed += 1
        nonce = self._random(NONCE_BYTES)
        sealed = current.aead.encrypt(nonce, content, current.before[kind] + key)
        return join(current.key_id, current.salt, nonce, sealed)

    def _open(self, kind: Kind, key: ExactKey, raw: bytes) -> bytes:
        key_id, salt, nonce, sealed = split(raw)
        data_key = self._data_keys.get(key_id)
        if data_key is None:
            raise PayloadUnreadable(Unreadable.NO_KEY)
        opened = self._opened.get((key_id, salt))
        if opened is None:
            opened = self._subkey(key_id, salt, data_key)
            if len(self._opened) >= MOST_OPENED:
                self._opened.clear()
            self._opened[key_id, salt] = opened
        return opened.aead.decrypt(nonce, sealed, opened.before[kind] + key)

    def _fresh(self, key_id: bytes) -> _Subkey:
        data_key = self._data_keys.get(key_id)
        if data_key is None:
            raise PayloadUnreadable(Unreadable.NO_KEY)
        return self._subkey(key_id, self._random(SALT_BYTES), data_key)

    def _subkey(self, key_id: bytes, salt: bytes, data_key: bytes) -> _Subkey:
        return _Subkey(
            key_id=key_id,
            salt=salt,
            aead=self._aead_of(subkey(data_key, salt)),
            before={kind: bound_before(kind, self._namespace, key_id) for kind in Kind},
        )
