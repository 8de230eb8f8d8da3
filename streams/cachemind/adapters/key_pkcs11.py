"""Signing keys in an HSM, over PKCS#11: the private part never leaves the token."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Final, cast

import pkcs11
from pkcs11 import Attribute, KeyType, Mechanism, ObjectClass, PrivateKey, PublicKey
from pkcs11.types import SignMixin
from pkcs11.util.ec import encode_ec_public_key

from cachemind.adapters.key_verify import OpensslCheck, check_p256
from cachemind.adapters.local_key import check_message
from cachemind.adapters.pkcs11_object import (
    Pkcs11Object,
    TokenAccess,
    find_one,
    load_module,
)
from cachemind.core.ecdsa_signature import with_low_s
from cachemind.core.pkcs11_uri import Pkcs11Uri
from cachemind.core.public_keys import key_id_of
from cachemind.errors import InvalidEvent, KeyRefused
from cachemind.receipts import KeyId, Signature

_PROBE: Final = b"cachemind/key-probe/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    private: SignMixin
    public_key: bytes


class Pkcs11Key:
    """Signs with a P-256 key on a token; any thread may ask, one at a time is served.

    The hash is made here, since not every token knows ECDSA with SHA-256.
    """

    def __init__(self, uri: Pkcs11Uri, access: TokenAccess) -> None:
        """Find the key and check that its halves belong together.

        Raises: `KeyRefused` where there is no such key, it is not P-256, or it
        could leave the token; `KeyUnavailable`.
        """
        load_module(access.module)
        self._object = Pkcs11Object(uri, access, lambda it: _find(it, uri))
        self._public_key = self._object.use(lambda pair: pair.public_key)
        self._key_id = key_id_of(self._public_key)
        try:
            check_p256(self._public_key)
        except InvalidEvent as error:
            raise KeyRefused(self._object.shown, error.problem) from error
        self._check_halves()

    @property
    def key_id(self) -> KeyId:
        """Return the id that follows from the public key."""
        return self._key_id

    @property
    def public_key(self) -> bytes:
        """Return the public key as DER (SPKI)."""
        return self._public_key

    def sign(self, message: bytes) -> Signature:
        """Return a signature of the token; its nonce is the token's too."""
        check_message(self._object.shown, message)
        digest = sha256(message).digest()
        raw = self._object.use(lambda pair: self._by(pair, digest))
        try:
            return Signature(key_id=self._key_id, value=with_low_s(raw))
        except InvalidEvent as error:
            raise KeyRefused(self._object.shown, f"gave no {error}") from error

    def close(self) -> None:
        """Leave the token."""
        self._object.close()

    def _by(self, pair: _Pair, digest: bytes) -> bytes:
        if pair.public_key != self._public_key:
            # After the token was lost and came back.
            raise KeyRefused(self._object.shown, "is another key than it was")
        return pair.private.sign(digest, mechanism=Mechanism.ECDSA)

    def _check_halves(self) -> None:
        signature = self.sign(_PROBE).value
        if not OpensslCheck().ecdsa(self._public_key, _PROBE, signature):
            raise KeyRefused(
                self._object.shown, "public and private key do not belong together"
            )


def _find(session: pkcs11.Session, uri: Pkcs11Uri) -> _Pair:
    private = cast(PrivateKey, find_one(session, uri, ObjectClass.PRIVATE_KEY))
    if private.key_type is not KeyType.EC:
        raise pkcs11.KeyTypeInconsistent("must be an EC key")
    if private[Attribute.EXTRACTABLE]:
        raise pkcs11.KeyTypeInconsistent("must not be extractable (CKA_EXTRACTABLE)")
    public = cast(PublicKey, find_one(session, uri, ObjectClass.PUBLIC_KEY))
    return _Pair(
        private=cast(SignMixin, private), public_key=encode_ec_public_key(public)
    )
