"""Verifies an issuer's tokens with the keys that it publishes (RFC 7517)."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import aiohttp
import orjson
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, JWKRegistry, RSAKey

from cachemind.core.access import Caller
from cachemind.core.oidc import Issuer, caller_of, check_url, peek
from cachemind.core.token_bucket import Bucket, Rate
from cachemind.errors import InvalidEvent, KeyUnavailable

REFRESH_S: Final = 300
"""After that the keys are fetched anew: one that the issuer withdrew must not count."""

STALE_S: Final = 24 * 3_600
"""Without any answer for so long no token counts: nobody knows what was withdrawn."""

FETCHES: Final = Rate(per_s=0.1, burst=3)
"""Anybody can make up a key id; the issuer must not be asked for each."""

TIMEOUT_S: Final = 5.0
_LARGEST_BYTES: Final = 1 << 20
_MOST_KEYS: Final = 64
_RSA_BITS: Final = 2_048
_NS_PER_S: Final = 1_000_000_000
_KIND_OF: Final = {"RS256": ("RSA", None), "ES256": ("EC", "P-256")}
_LOG: Final = logging.getLogger("cachemind.oidc")

_Key = RSAKey | ECKey


class JwksVerifier:
    """A `TokenVerifier` of one issuer. Its keys are fetched when first needed."""

    def __init__(self, issuer: Issuer) -> None:
        """Ask nobody yet."""
        self._issuer = issuer
        self._keys: Mapping[tuple[str, str | None], _Key] = {}
        self._fetched_ns: int | None = None
        self._bucket: Bucket | None = None
        self._fetching: asyncio.Task[bool] | None = None

    def verify(self, token: str, now_ns: int) -> Caller | None:
        """Return who presents the token, None for any that does not count now.

        Has the keys fetched beside it where they are old; called in an event loop.
        """
        found = peek(token)
        if found is None or found.issuer != self._issuer.issuer:
            return None
        age_s = self._age_s(now_ns)
        if age_s is None or age_s >= STALE_S:
            return None
        if age_s >= REFRESH_S:
            self._fetch_beside(now_ns)
        key = self._key(found.algorithm, found.key_id)
        claims = None if key is None else _claims(token, str(found.algorithm), key)
        return None if claims is None else caller_of(self._issuer, claims, now_ns)

    async def learn(self, token: str, now_ns: int) -> bool:
        """Return whether keys were fetched now, for a token whose key is not known."""
        found = peek(token)
        if found is None or found.issuer != self._issuer.issuer:
            return False
        if found.algorithm not in self._issuer.algorithms:
            return False
        age_s = self._age_s(now_ns)
        known = age_s is not None and age_s < STALE_S
        if known and self._key(found.algorithm, found.key_id) is not None:
            return False
        task = self._fetch_beside(now_ns)
        # Who goes away must not take the answer from those who wait for it too.
        return task is not None and await asyncio.shield(task)

    async def close(self) -> None:
        """Give up a question that is under way."""
        task, self._fetching = self._fetching, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _age_s(self, now_ns: int) -> float | None:
        """Return how old the keys are, None before there were any."""
        if self._fetched_ns is None:
            return None
        return (now_ns - self._fetched_ns) / _NS_PER_S

    def _key(self, algorithm: object, key_id: str | None) -> _Key | None:
        if algorithm not in self._issuer.algorithms:
            return None
        kept = {
            which: key for which, key in self._keys.items() if which[0] == algorithm
        }
        if key_id is None:
            # Without a name it can only be the one that there is.
            return next(iter(kept.values())) if len(kept) == 1 else None
        return kept.get((str(algorithm), key_id))

    def _fetch_beside(self, now_ns: int) -> asyncio.Task[bool] | None:
        """Return the question that is under way, a new one where the rate allows."""
        if self._fetching is not None and not self._fetching.done():
            return self._fetching
        bucket = self._bucket or Bucket.full(FETCHES, now_ns)
        left = bucket.taken(FETCHES, now_ns)
        if left is None:
            return None
        self._bucket = left
        self._fetching = asyncio.get_running_loop().create_task(self._fetch(now_ns))
        return self._fetching

    async def _fetch(self, now_ns: int) -> bool:
        try:
            keys = _usable(await self._document(), self._issuer.algorithms)
        except KeyUnavailable as error:
            _LOG.warning("%s; the keys that are known still count", error)
            return False
        self._keys, self._fetched_ns = keys, now_ns
        return True

    async def _document(self) -> Mapping[str, Any]:
        """Return the issuer's set of keys. Raises: `KeyUnavailable`."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            url = self._issuer.jwks_url or await self._discovered(session)
            return await _get(session, url)

    async def _discovered(self, session: aiohttp.ClientSession) -> str:
        where = self._issuer.discovery_url
        found = await _get(session, where)
        # Source: OpenID Connect Discovery 1.0 section 4.3.
        if found.get("issuer") != self._issuer.issuer:
            raise KeyUnavailable(where, "speaks for another issuer")
        url = found.get("jwks_uri")
        if not isinstance(url, str):
            raise KeyUnavailable(where, "does not say where the keys are")
        try:
            check_url("jwks_uri", url)
        except InvalidEvent as error:
            raise KeyUnavailable(where, str(error)) from error
        return url


async def _get(session: aiohttp.ClientSession, url: str) -> Mapping[str, Any]:
    """Return the JSON object at `url`. Raises: `KeyUnavailable`."""
    try:
        async with session.get(url, allow_redirects=False) as answer:
            body = await answer.content.read(_LARGEST_BYTES + 1)
            while len(body) <= _LARGEST_BYTES and not answer.content.at_eof():
                body += await answer.content.read(_LARGEST_BYTES + 1 - len(body))
            status = answer.status
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise KeyUnavailable(url, f"does not answer: {type(error).__name__}") from error
    if status != 200 or len(body) > _LARGEST_BYTES:
        raise KeyUnavailable(url, f"answered {status} and {len(body)} bytes")
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise KeyUnavailable(url, "did not answer JSON") from error
    if not isinstance(document, dict):
        raise KeyUnavailable(url, "did not answer a JSON object")
    return document


def _usable(
    document: Mapping[str, Any], algorithms: Sequence[str]
) -> Mapping[tuple[str, str | None], _Key]:
    """Return the keys that signatures may be verified with, by algorithm and id.

    A key that is not understood is left out: an issuer may publish others too
    (RFC 7517 section 5). Raises: `KeyUnavailable` where none is left: a set that is
    empty by accident must not take the place of what is known.
    """
    listed = document.get("keys")
    found: dict[tuple[str, str | None], _Key] = {}
    for member in listed[:_MOST_KEYS] if isinstance(listed, list) else ():
        for algorithm in algorithms:
            key = _imported(member, algorithm)
            if key is not None:
                found[algorithm, member.get("kid")] = key
    if not found:
        raise KeyUnavailable("of the issuer", "it publishes none that can be used")
    return found


def _imported(member: object, algorithm: str) -> _Key | None:
    if not isinstance(member, dict):
        return None
    kind, curve = _KIND_OF[algorithm]
    if member.get("kty") != kind or (curve and member.get("crv") != curve):
        return None
    if member.get("use", "sig") != "sig" or member.get("alg", algorithm) != algorithm:
        return None
    if not isinstance(member.get("kid"), str | None):
        return None
    if kind == "RSA" and _bits(member.get("n")) < _RSA_BITS:
        return None
    try:
        key = JWKRegistry.import_key(member)
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    return key if isinstance(key, RSAKey | ECKey) else None


def _bits(modulus: object) -> int:
    """Return how many bits a modulus in base64url has, 0 for none."""
    if not isinstance(modulus, str):
        return 0
    try:
        raw = base64.urlsafe_b64decode(modulus + "=" * (-len(modulus) % 4))
    except (binascii.Error, ValueError):
        return 0
    return int.from_bytes(raw, "big").bit_length()


def _claims(token: str, algorithm: str, key: _Key) -> Mapping[str, Any] | None:
    """Return the claims of a token that `key` signed, None where it did not."""
    try:
        verified = jws.deserialize_compact(token, key, algorithms=[algorithm])
        claims = orjson.loads(verified.payload)
    except (JoseError, ValueError, RecursionError):
        return None
    return claims if isinstance(claims, dict) else None
