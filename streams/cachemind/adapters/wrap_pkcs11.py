"""A wrapping key in an HSM: AES-256-GCM on the token, over PKCS#11."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final, Protocol, cast
from urllib.parse import quote

import pkcs11
from pkcs11 import Attribute, GCMParams, KeyType, Mechanism, ObjectClass, SecretKey

from cachemind.adapters.pkcs11_object import (
    Pkcs11Object,
    TokenAccess,
    find_one,
    load_module,
)
from cachemind.core.pkcs11_uri import Pkcs11Uri
from cachemind.core.wrapped_key import NONCE_BYTES, TAG_BYTES, bound, join, split
from cachemind.errors import InvalidEvent, KeyRefused

_KEY_BYTES: Final = 32
_PROBE: Final = bytes(_KEY_BYTES)


class _Cipher(Protocol):
    """What the binding gives a secret key that may encrypt and decrypt."""

    def encrypt(
        self, data: bytes, *, mechanism: Mechanism, mechanism_param: GCMParams
    ) -> bytes: ...

    def decrypt(
        self, data: bytes, *, mechanism: Mechanism, mechanism_param: GCMParams
    ) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wrapping:
    key: _Cipher
    wrapper_id: str


class Pkcs11Wrapper:
    """Wraps under an AES key on a token; any thread may ask, one at a time is served.

    Needs a token that takes its caller's nonce (CKM_AES_GCM).
    """

    def __init__(self, uri: Pkcs11Uri, access: TokenAccess) -> None:
        """Find the key. Raises: `KeyRefused`, `KeyUnavailable`."""
        load_module(access.module)
        self._object = Pkcs11Object(uri, access, lambda it: _find(it, uri))
        self._wrapper_id = self._object.use(lambda found: found.wrapper_id)

    @property
    def wrapper_id(self) -> str:
        """Return the URI of the key by the token's serial, which never changes."""
        return self._wrapper_id

    def wrap(self, secret: bytes, context: bytes) -> bytes:
        """Return `secret` encrypted under the key, the context with it."""
        nonce = os.urandom(NONCE_BYTES)
        gcm = self._parameters(nonce, context)
        return join(nonce, self._object.use(lambda it: _encrypt(it.key, secret, gcm)))

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """Return the secret. Raises: `KeyRefused` where it does not authenticate."""
        try:
            nonce, sealed = split(wrapped)
        except InvalidEvent as error:
            raise KeyRefused(self._object.shown, error.problem) from error
        gcm = self._parameters(nonce, context)
        return self._object.use(lambda it: self._decrypt(it.key, sealed, gcm))

    def close(self) -> None:
        """Leave the token."""
        self._object.close()

    def _parameters(self, nonce: bytes, context: bytes) -> GCMParams:
        return GCMParams(nonce, bound(self._wrapper_id, context), TAG_BYTES * 8)

    def _decrypt(self, key: _Cipher, sealed: bytes, gcm: GCMParams) -> bytes:
        try:
            return key.decrypt(sealed, mechanism=Mechanism.AES_GCM, mechanism_param=gcm)
        except pkcs11.PKCS11Error as error:
            # Tokens have no word of their own for a tag that is wrong. One that
            # still encrypts is well, so it is the bytes.
            _encrypt(key, _PROBE, self._parameters(os.urandom(NONCE_BYTES), b""))
            raise KeyRefused(
                self._object.shown,
                "it was changed, wrapped elsewhere or under another context",
            ) from error


def _encrypt(key: _Cipher, secret: bytes, gcm: GCMParams) -> bytes:
    return key.encrypt(secret, mechanism=Mechanism.AES_GCM, mechanism_param=gcm)


def _find(session: pkcs11.Session, uri: Pkcs11Uri) -> _Wrapping:
    key = cast(SecretKey, find_one(session, uri, ObjectClass.SECRET_KEY))
    if key.key_type is not KeyType.AES or key[Attribute.VALUE_LEN] != _KEY_BYTES:
        raise pkcs11.KeyTypeInconsistent("must be an AES key of 256 bits")
    if key[Attribute.EXTRACTABLE]:
        raise pkcs11.KeyTypeInconsistent("must not be extractable (CKA_EXTRACTABLE)")
    serial = session.token.serial.decode("ascii", "replace").strip()
    named = f"object={quote(key.label)}" if key.label else ""
    by_id = f"id=%{key.id.hex('%')}" if key.id else ""
    return _Wrapping(
        key=cast(_Cipher, key),
        wrapper_id="pkcs11:"
        + ";".join(filter(None, (f"serial={serial}", named, by_id))),
    )
