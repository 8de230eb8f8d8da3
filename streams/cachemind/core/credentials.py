"""What a request presents as its credential, and who that is.

Two ways: `X-CacheMind-Key`, and then `Authorization` is upstream's alone; or
`Authorization: Bearer` with one of our keys or a token of the configured issuer, and
then it never leaves for upstream. Whatever is ambiguous is no credential.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from cachemind.core.access import Caller
from cachemind.core.api_keys import SCHEME, KeyBook

KEY_HEADER: Final = b"x-cachemind-key"
AUTHORIZATION: Final = b"authorization"
LONGEST_TOKEN: Final = 16_384
_BEARER: Final = "bearer"
_TOKEN_PARTS: Final = 3

Headers = Iterable[tuple[bytes, bytes]]
"""Names in lower case, as ASGI has them."""


class TokenVerifier(Protocol):
    """Tells whose a token is, with the issuer's keys that are known by now."""

    def verify(self, token: str, now_ns: int) -> Caller | None:
        """Return who presents the token, None for any that does not count now."""
        ...

    async def learn(self, token: str, now_ns: int) -> bool:
        """Return whether new keys were fetched, so that to verify again may succeed.

        They are where the token names a key that is not known. Asks the issuer at a
        bounded rate, and raises nothing: while the issuer is away what is known
        counts.
        """
        ...

    async def close(self) -> None:
        """Give up what is under way with the issuer."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Presented:
    """One credential: an API key, or a token that may be the issuer's."""

    text: str
    is_key: bool
    in_authorization: bool
    """Then upstream must not see the header `Authorization`."""


def presented(headers: Headers) -> Presented | None:
    """Return the credential among a request's headers, None for none or too many."""
    keys: list[bytes] = []
    authorizations: list[bytes] = []
    for name, value in headers:
        if name == KEY_HEADER:
            keys.append(value)
        elif name == AUTHORIZATION:
            authorizations.append(value)
    if len(keys) > 1 or len(authorizations) > 1:
        return None
    bearer = _bearer(authorizations[0]) if authorizations else None
    if keys:
        # A key of ours in both places is a mistake, and would go on to upstream.
        if bearer is not None and bearer.startswith(SCHEME):
            return None
        text = _text(keys[0])
        if text is None:
            return None
        return Presented(text=text, is_key=True, in_authorization=False)
    if bearer is None:
        return None
    if bearer.startswith(SCHEME):
        return Presented(text=bearer, is_key=True, in_authorization=True)
    parts = bearer.split(".")
    if len(parts) != _TOKEN_PARTS or not all(parts) or len(bearer) > LONGEST_TOKEN:
        return None
    return Presented(text=bearer, is_key=False, in_authorization=True)


def authenticate(
    headers: Headers, book: KeyBook, tokens: TokenVerifier | None, now_ns: int
) -> Caller | None:
    """Return who sends these headers, None where no credential among them counts.

    Units: `now_ns` since the Unix epoch (UTC).
    """
    found = presented(headers)
    return None if found is None else identified(found, book, tokens, now_ns)


def identified(
    found: Presented, book: KeyBook, tokens: TokenVerifier | None, now_ns: int
) -> Caller | None:
    """Return who presents `found`, None where it does not count."""
    if found.is_key:
        return book.find(found.text, now_ns)
    return None if tokens is None else tokens.verify(found.text, now_ns)


async def authenticated(
    headers: Headers, book: KeyBook, tokens: TokenVerifier | None, now_ns: int
) -> Caller | None:
    """Return the same as `authenticate`, after asking the issuer for a key it needs."""
    found = presented(headers)
    if found is None:
        return None
    caller = identified(found, book, tokens, now_ns)
    if caller is not None or found.is_key or tokens is None:
        return caller
    learned = await tokens.learn(found.text, now_ns)
    return tokens.verify(found.text, now_ns) if learned else None


def _bearer(value: bytes) -> str | None:
    text = _text(value)
    if text is None:
        return None
    scheme, _, token = text.partition(" ")
    return token.strip() if scheme.lower() == _BEARER else None


def _text(value: bytes) -> str | None:
    return value.decode() if value.isascii() else None
